"""Tests of background jobs."""
