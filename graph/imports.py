"""Access of an importing program to the repositories of the projects that it has imported.

This is not an operation of the schema, because it reads a folder of the host. The rules are in `graph/rules/imports/repositories.py`.
"""

from pathlib import Path

from graph.context import Services
from graph.rules.imports import repositories
from graph.rules.imports.batches import ItemResult


class InstanceImports:
    """Imports repositories over the services of this process."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def import_repository(self, import_id: int, project_id: str, mirror: Path) -> ItemResult:
        """Makes the branches, tags and HEAD of an imported project those of a bare repository on this host.

        `project_id` is the source's. Raises Invalid and NotAllowed for the import, and Unavailable.
        """
        return await repositories.import_repository(self._services, import_id, project_id, mirror)
