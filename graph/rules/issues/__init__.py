"""Rules of issues, labels and milestones."""
