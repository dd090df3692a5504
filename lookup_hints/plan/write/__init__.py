"""The edits that turn a planned statement into Spark SQL. What is looked up how is decided before."""
