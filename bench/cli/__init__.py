"""The ``bench`` command, one module for each subcommand."""
