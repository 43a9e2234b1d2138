"""Helpers of the tests of rest_v3."""
