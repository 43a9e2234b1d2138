"""Decides: who may, what follows, what is shown. The only caller of storage."""

DISTRIBUTION = "forgefront"
"""The distribution that this package belongs to; `forgefront/__init__.py` checks it."""
