"""Tables of cells next to the papers' values."""
