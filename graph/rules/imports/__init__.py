"""Imports of other instances: batches of users, projects and what belongs to them, written by an administrator's import."""
