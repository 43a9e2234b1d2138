"""The peers of the table: small applications on the service's own tables, each written as its manual says."""
