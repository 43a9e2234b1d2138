"""Keeps. Knows no viewer, no rule, no HTTP; takes its parameters and reads no environment."""

DISTRIBUTION = "forgefront"
"""The distribution that this package belongs to; `forgefront/__init__.py` checks it."""
