"""Planner: compiles an operation into a plan once, then only runs it."""
