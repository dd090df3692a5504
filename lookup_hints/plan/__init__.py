"""A statement and the lookup tables it names -> a plan: Spark SQL with UDF calls, and what they do."""
