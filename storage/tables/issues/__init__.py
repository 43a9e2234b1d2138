"""Issues, labels, milestones and notes."""
