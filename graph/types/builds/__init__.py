"""GraphQL types of builds, runners, artifacts and traces."""
