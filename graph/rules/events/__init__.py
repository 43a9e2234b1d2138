"""Rules of hooks and of change records."""
