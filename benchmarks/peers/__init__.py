"""The peers of the table: small applications on the service's own tables, each written as the manual of its framework says."""

DATABASE_URL_VARIABLE = "PEER_DATABASE_URL"
"""The variable with the URL of a peer's database. The peers on SQLAlchemy need a driver in it, the others none."""
