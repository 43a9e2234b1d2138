"""GraphQL types of projects, forks, namespaces, snippets and uploads."""
