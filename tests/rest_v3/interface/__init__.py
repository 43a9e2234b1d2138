"""Tests of the interface document and of OpenAPI."""
