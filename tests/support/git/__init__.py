"""Repositories and packs that tests need."""
