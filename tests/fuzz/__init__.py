"""Fuzzing: generates requests to a server, or to two graphs, for a given time (`python -m tests.fuzz --help`)."""
