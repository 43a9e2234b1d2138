"""Imports an instance through its REST interface (v3 or v4) and git, and writes it through the graph."""
