"""Nodes of a plan."""
