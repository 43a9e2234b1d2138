"""Tests of builds, runners, artifacts and pipelines."""
