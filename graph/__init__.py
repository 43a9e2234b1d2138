"""Decides: who may, what follows, what is shown. The only caller of storage."""
