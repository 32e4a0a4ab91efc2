"""What lies in a results folder: records, summaries, indexes, finished cells."""
