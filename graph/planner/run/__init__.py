"""Run: executes the nodes of a plan, level by level. Importing it registers the function of each kind of node."""

from graph.planner.run import connections, project_root, relations, row_by_number

__all__ = ["connections", "project_root", "relations", "row_by_number"]
