"""Business rules as plain functions, without GraphQL or HTTP."""
