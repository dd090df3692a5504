"""The ways in: command line, `spark-submit`, notebook; and how they show rows, plans, counts and errors."""
