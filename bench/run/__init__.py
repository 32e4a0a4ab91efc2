"""A cell of a table: planned, its questions answered, each recorded."""
