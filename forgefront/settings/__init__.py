"""Groups of settings."""
