"""Tests of the server and its endpoints."""
