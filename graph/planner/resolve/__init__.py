"""Resolve: decides how each collected field is read."""
