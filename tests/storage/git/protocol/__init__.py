"""Tests of what clients of git send and receive."""
