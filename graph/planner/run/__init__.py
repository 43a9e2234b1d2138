"""Run: executes the nodes of a plan, level by level."""
