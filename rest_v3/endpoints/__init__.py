"""Endpoints: a route joined with its prepared operation."""
