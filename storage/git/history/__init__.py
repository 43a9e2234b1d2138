"""Histories of commits and of files."""
