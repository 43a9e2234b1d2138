"""Helpers of the tests of forgefront."""
