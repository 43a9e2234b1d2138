"""Buckets of object storage."""
