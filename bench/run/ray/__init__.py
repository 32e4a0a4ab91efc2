"""Questions answered by the workers of a Ray cluster."""
