"""Permissions: the policy, in Python and in SQL, and the access of a viewer to projects."""
