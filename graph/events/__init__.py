"""Outbox: payloads, publisher, delivery worker."""
