"""Tests of object storage."""
