"""Statements about lookup tables: CREATE, DROP, DESCRIBE, SHOW and REFRESH, read and written."""
