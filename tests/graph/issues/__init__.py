"""Tests of issues, labels and milestones."""
