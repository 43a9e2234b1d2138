"""Endpoints beside GraphQL and v3: artifact uploads, attached files and named queries."""
