"""Run an operation: documents, limits, cost, rate limits, transaction, results."""
