"""Prove that every sink holds what Postgres answers to the view's own SQL, both at one position of the log."""
