"""Tests of the limits of operations."""
