"""Tests of several hosts of one instance."""
