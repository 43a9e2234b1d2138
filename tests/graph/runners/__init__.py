"""Tests of runners and of the builds that they claim."""
