"""Fetching and pushing: upload-pack and receive-pack, and the hooks of a push."""
