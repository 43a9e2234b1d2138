"""The readiness checks of the service, for administrators."""

from collections.abc import Awaitable, Callable, Mapping

CheckRunner = Callable[[], Awaitable[Mapping[str, str | None]]]
"""Runs the checks, and returns the problem of each by its name; None if it passed."""


class HealthChecks:
    """The checks that the service registers when it is constructed. A program without an HTTP server has none."""

    def __init__(self) -> None:
        self._run: CheckRunner | None = None

    def register(self, run: CheckRunner) -> None:
        """Sets the function that runs the checks."""
        self._run = run

    async def find_problems(self) -> Mapping[str, str | None]:
        """Runs the checks, and returns the problem of each by its name, None for one that passed; empty without an HTTP server."""
        return await self._run() if self._run is not None else {}
