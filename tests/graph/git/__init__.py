"""Tests of branches, commits and trees."""
