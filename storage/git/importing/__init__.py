"""Repositories from elsewhere."""
