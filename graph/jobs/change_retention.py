"""How long the log of changes is retained. The configuration imports this, so that its program need not load the graph."""

from dataclasses import dataclass

DEFAULT_DAYS, DEFAULT_ROWS = 30, 1_000_000


@dataclass(frozen=True, slots=True)
class ChangeRetention:
    """Which changes subscriptions can resume after: those younger than `days`, of them the newest `rows`."""

    days: int = DEFAULT_DAYS
    rows: int = DEFAULT_ROWS
