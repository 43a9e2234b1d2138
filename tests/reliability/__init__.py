"""Tests of Forgefront's reliability promises."""
