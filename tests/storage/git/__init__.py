"""Tests of git repositories."""
