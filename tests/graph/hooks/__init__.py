"""Tests of webhooks and their delivery."""
