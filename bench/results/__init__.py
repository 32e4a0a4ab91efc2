"""The contents of a results folder: records, summaries, indexes, finished cells."""
