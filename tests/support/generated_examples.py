"""Hypothesis, which draws no constants of the product's code: reading them parses every imported module, for seconds in each process."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

__all__ = ["given", "settings", "st"]

vars(providers)["_get_local_constants"] = lambda: providers._local_constants
