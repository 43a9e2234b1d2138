"""Tests of projects, groups and forks."""
