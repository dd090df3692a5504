"""``lookup_get``: one value by key in any expression, as a LEFT JOIN."""
