"""``INSERT INTO sink SELECT ... FROM STREAM source``: a statement that starts a streaming query."""
