"""Events, webhooks and the change log."""
