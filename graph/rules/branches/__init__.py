"""Branches: their heads, health and history."""
