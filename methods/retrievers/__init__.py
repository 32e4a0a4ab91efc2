"""Rank passages, read the best ones: one file for each ranker."""
