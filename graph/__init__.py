"""The graph layer: schema, permissions, rules and events. The only caller of storage."""

DISTRIBUTION = "forgefront"
"""The distribution that this package belongs to; `forgefront/__init__.py` checks it."""
