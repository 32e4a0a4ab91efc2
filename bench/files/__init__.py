"""Atomic writes, YAML, hashes, and the paths of the project's own files."""
