"""Rules of users, groups, members, keys and sign-in."""
