"""Columnar copies of tables, for statistics over many rows. They are derived from the database and can be deleted at any time."""
