"""Rules of pushes, branches, commits and the commit index."""
