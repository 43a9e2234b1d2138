"""Reading requests: bodies, credentials and parameters."""
