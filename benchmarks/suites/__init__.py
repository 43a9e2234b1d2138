"""The commands of `scripts/bench`, a module for each, and the questions that they ask."""
