"""Tests of the generated clients."""
