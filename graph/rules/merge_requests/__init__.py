"""Rules of merge requests: preview, merge, refresh, history."""
