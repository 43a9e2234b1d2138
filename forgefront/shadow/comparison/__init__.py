"""The process that sends copies to the shadow server, compares the answers, and reports."""
