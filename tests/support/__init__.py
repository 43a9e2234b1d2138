"""Helpers, fixtures and generators that the tests share."""
