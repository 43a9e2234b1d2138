"""Subscriptions: the change log, the fan-out, the streams."""
