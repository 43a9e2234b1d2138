"""Compiled statements, and the caches that retain them."""
