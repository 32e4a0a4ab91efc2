"""Rank passages, read the best ones: one file per ranker."""
