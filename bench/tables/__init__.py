"""Tables of cells beside the papers' values."""
