"""GraphQL types of merge requests."""
