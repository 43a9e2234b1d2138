"""Fuzzing: parts that send made-up requests to a server, or to two graphs, until their time is over (`python -m tests.fuzz --help`)."""
