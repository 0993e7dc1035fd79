"""What takes too long for the suite: `make soak`. Capture against real servers, killed often or run for long."""
