"""Grids of cells: their options, their estimated cost, and the groups that share a run."""
