"""Tests of endpoints beside the APIs."""
