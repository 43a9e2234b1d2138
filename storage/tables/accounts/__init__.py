"""Users, groups and who belongs to what."""
