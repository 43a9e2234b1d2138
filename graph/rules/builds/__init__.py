"""Rules of builds, runners, artifacts and traces."""
