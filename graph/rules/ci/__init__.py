"""Pipelines from `.gitlab-ci.yml`: parse the file, select the jobs for a ref, create their builds."""
