"""`python -m cdc` is `afterimage`."""

from __future__ import annotations

from cdc.cli.app import main

if __name__ == "__main__":
    main()
