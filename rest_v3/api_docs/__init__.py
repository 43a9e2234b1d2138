"""The OpenAPI document of the routes, and the page that shows it."""
