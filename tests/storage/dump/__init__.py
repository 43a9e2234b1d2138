"""Tests of dumps."""
