"""Tests of accounts, members and settings."""
