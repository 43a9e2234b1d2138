"""Tests of the rest_v3 package."""
