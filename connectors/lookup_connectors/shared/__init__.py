"""What several connectors share: options, parts of SQL, templates of keys, conversions, budgets of bytes."""
