"""GraphQL types of issues, labels and milestones."""
