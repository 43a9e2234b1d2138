"""Tests of how operations are executed and limited."""
