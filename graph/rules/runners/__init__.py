"""Runners, and the builds that they take."""
