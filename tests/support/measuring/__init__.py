"""Measurements of processes and of event loops."""
