"""A statement as the planner reads it: pieces, blocks, names. It knows no connector and changes nothing."""
