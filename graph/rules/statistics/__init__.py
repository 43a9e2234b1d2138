"""Statistics of builds, from the tables and from the columnar copy, and what all statistics share."""
