"""Which lookup tables, connectors and predicates there are, and the statements that create and show them."""
