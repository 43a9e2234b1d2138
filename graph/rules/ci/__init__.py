"""Pipelines from `.gitlab-ci.yml`: parse the file, select the jobs for a ref, and create their builds stage by stage."""
