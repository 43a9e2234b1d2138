"""Operations that are run with the columnar copy of builds and without it."""

from dataclasses import replace
from typing import Any

from graph.context import Services
from graph.jobs.build_analytics import BuildAnalytics
from graph.operations.execution import Graph
from storage import tables
from tests.support.api_clients import Ask
from tests.support.git.repositories import keep_refs_in_step


class Both:
    """Runs operations with the copy and without it."""

    def __init__(self, services: Services, analytics: BuildAnalytics) -> None:
        self.services = services
        self.copied = Ask(keep_refs_in_step(Graph(replace(services, build_analytics=analytics))))
        self.stored = Ask(keep_refs_in_step(Graph(services)))
        self.copied_count = 0

    async def data(self, query: str, viewer: tables.User, **variables: Any) -> dict[str, Any]:
        """The data, which must be the same and come from the copy."""
        before = self.copied_count
        found = await self.copied.data(query, viewer, **variables)
        assert self.copied_count > before, "the copy did not answer"
        assert found == await self.stored.data(query, viewer, **variables), (query, variables)
        return found
