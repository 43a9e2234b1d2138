"""GraphQL documents: parsed, validated, kept and trusted."""
