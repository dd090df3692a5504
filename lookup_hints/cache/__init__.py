"""How a task uses remembered answers: in which folder, what has changed, when a table is read whole."""
