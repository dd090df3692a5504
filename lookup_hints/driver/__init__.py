"""Run statements in Spark: their scope, plan, DDL and streams, and the translation of Spark's errors."""
