"""GraphQL types of users, groups, members and keys."""
