"""Rows of the index of commits that the repository does not have any more."""

from collections.abc import Collection, Sequence

from graph.context import Services
from graph.operations.transaction import write_transaction
from graph.rules.git import indexed_commits
from graph.rules.git.row_batches import split_rows
from storage.git.commits import GitCommit
from storage.git.history import commit_walk
from storage.git.repository import Repository
from storage.tables.git import commits


async def delete_absent_commits(services: Services, project_id: int, oids: Sequence[str]) -> int:
    """Delete the rows of those of these ids that the repository does not have; returns the number of these ids.

    Raises NotFound when the project is deleted meanwhile, NotARepository.
    """
    absent, deleted = 0, list[str]()
    for part in split_rows(oids):
        missing = await _read_absent(services, project_id, part)
        absent += len(missing)
        if missing:
            async with write_transaction(services.database) as session:
                deleted += [oid for (oid,) in await session.execute(commits.delete_commits(project_id, missing))]
    # A push may have brought some of them back: it inserts no row while one exists, and reads that after its objects are in the repository.
    # So the objects of every push that has read a deleted row are there now.
    for part in split_rows(deleted):
        returned = sorted(set(part) - set(await _read_absent(services, project_id, part)))

        def work(repository: Repository, oids: Sequence[str] = returned) -> list[GitCommit]:
            return repository.commits(oids)

        if returned:
            await indexed_commits.write_missing_commits(services, project_id, await services.repositories.read(project_id, work))
    return absent


async def _read_absent(services: Services, project_id: int, oids: Collection[str]) -> list[str]:
    """Those of these ids that the repository does not have, on no host."""
    await services.repositories.fetch_new_packs(project_id)
    return await services.repositories.read(project_id, lambda repository: commit_walk.absent_ids(repository, oids))
