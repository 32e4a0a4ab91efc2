"""The ``bench`` command, one module per subcommand."""
