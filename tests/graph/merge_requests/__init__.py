"""merge_requests."""
