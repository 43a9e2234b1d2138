"""The HTTP server: connections, middleware, metrics, health and worker processes."""
