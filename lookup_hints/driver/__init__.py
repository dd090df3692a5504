"""Running statements in Spark: what one runs over, its plan, DDL and stream, and what Spark's errors mean."""
