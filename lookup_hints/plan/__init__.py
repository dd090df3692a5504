"""Plan a statement that names lookup tables: Spark SQL with UDF calls, and a specification of each call."""
