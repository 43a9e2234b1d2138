"""Tests of walks through histories."""
