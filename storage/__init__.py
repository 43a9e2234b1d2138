"""Keeps. Knows no viewer, no rule, no HTTP; takes its parameters and reads no environment."""
