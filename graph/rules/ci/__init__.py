"""Builds by the file `.gitlab-ci.yml` of a commit: reading it, choosing its jobs for a ref, and making builds of them stage by stage."""
