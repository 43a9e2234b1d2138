"""What the commands share: servers, load, rounds, and where results are written."""
