"""Measures the service against peers in one run on one machine; `README.md` explains the figures."""
