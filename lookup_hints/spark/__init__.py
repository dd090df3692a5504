"""Lookups as Spark runs them: functions on the driver, and what its Python workers call. It reads no SQL."""
