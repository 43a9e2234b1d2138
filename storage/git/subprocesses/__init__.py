"""subprocesses."""
