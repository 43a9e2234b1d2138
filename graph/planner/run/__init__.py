"""Run: executes the nodes of a plan, level by level. Importing it registers the function of each kind of node."""

from graph.planner.run import relations

__all__ = ["relations"]
