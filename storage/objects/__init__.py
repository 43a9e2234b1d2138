"""Artifacts, traces and uploads, in a folder or a bucket."""
