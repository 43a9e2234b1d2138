"""The process that clients talk to: passes requests and answers on, and copies them to the comparison."""
