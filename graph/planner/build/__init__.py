"""Build: makes the nodes of resolved fields."""
