"""The types: a file a noun, with its fields, its queries and its mutations."""
