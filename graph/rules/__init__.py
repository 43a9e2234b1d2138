"""Plain functions; no GraphQL, no HTTP."""
