"""Measures the service against a peer, in one run on one machine; `README.md` says how to read it."""
