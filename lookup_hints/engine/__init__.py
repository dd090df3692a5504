"""What runs on the workers: keys in, rows out. Never imports sqlglot, plan or a Spark session."""
