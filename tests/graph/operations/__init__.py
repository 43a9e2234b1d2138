"""Tests of how operations are executed."""
