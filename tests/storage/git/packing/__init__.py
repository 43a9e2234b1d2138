"""Tests of packs and of the objects that they keep."""
