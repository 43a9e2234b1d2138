"""The git program, and the limits it runs within."""
