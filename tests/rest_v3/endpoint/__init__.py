"""Tests of what all routes share."""
