"""Git over SSH."""
