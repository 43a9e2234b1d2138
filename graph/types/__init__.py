"""GraphQL types, one module per kind of object, with its fields, queries and mutations."""
