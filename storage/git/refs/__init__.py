"""Refs, which are rows of the database, and the files that git reads."""
