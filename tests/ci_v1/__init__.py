"""Tests of the ci_v1 package."""
