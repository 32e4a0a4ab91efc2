"""Grids of cells: their file, their estimated cost, and the groups that share a run."""
