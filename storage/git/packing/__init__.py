"""Packs and the objects in them."""
