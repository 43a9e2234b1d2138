"""Tests of the forgefront package."""
