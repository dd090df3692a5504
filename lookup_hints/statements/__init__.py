"""What a text says: a script and its parameters, and what each of its statements is. Nothing runs here."""
