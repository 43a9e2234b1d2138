"""Tests of subscriptions and their fan-out."""
