"""Identities outside of the instance: LDAP directories and OpenID providers. Rules decide what follows from them."""
