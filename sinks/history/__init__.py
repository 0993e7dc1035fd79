"""The history sink: a table's changes, every one of them, in a Delta table that is only appended to."""
