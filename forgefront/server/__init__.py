"""The HTTP server: connections, middleware, metrics, health and worker processes."""

from forgefront import process_setup as process_setup
