"""What `forgefront check` and `forgefront directory check` look at, and how they report it."""
