"""Background jobs, their wakeups, and the runners' queue."""
