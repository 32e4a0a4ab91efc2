"""Running a cell of a table: plan it, answer its questions, record each answer."""
