"""The edits that turn a planned statement into Spark SQL. All decisions were made before."""
