"""Figures: which cells they show, and how these are drawn."""
