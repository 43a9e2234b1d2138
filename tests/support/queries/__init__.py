"""Queries that tests make, and what they must answer."""
