"""api_docs."""
