"""coerce."""
