"""Markdown as HTML: the only place where texts of users become HTML."""
