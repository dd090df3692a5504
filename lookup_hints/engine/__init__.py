"""The engine of a lookup on workers: keys in, rows out. Never imports sqlglot, plan or a Spark session."""
