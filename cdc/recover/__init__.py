"""Taking a new slot when the old one is lost, and reconciling the topics with the source by difference."""
