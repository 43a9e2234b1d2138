"""Tests of CI configurations."""
