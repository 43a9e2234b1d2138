"""Accounts of people in directories and at OpenID providers: how they are found or made, and what their groups give them."""
