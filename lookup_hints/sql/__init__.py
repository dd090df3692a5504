"""The text of SQL: its pieces, lists of options and edits by place. It knows no statement and no lookup."""
