"""Imports of other instances: their mutations and what an administrator sees of them."""
