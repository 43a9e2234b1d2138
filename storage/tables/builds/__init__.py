"""Builds, their runners, and the checks of commits."""
