"""Coercion of variables and arguments."""
