"""Tests of notes, mentions and snippets."""
