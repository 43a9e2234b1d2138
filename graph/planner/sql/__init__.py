"""SQL statements of a plan."""
