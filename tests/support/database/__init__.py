"""Databases of tests."""
