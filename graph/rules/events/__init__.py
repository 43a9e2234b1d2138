"""Rules of hooks and of recorded changes."""
