"""git_http."""
