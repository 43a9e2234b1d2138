"""The GraphQL endpoint: requests, responses, Server-Sent Events, WebSocket."""
