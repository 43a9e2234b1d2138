"""Queues of builds that wait for runners.

A queue has the builds that require the same tags. Projects that refuse shared runners have queues of their own.
"""

from collections.abc import Collection, Mapping

from storage import tables

OWN_RUNNERS_PREFIX = ","
"""Begins the names of queues of projects that refuse shared runners; no tag contains a comma."""


def has_builds(project: tables.Project | None) -> bool:
    """Whether the project exists, has builds enabled and is not archived."""
    return project is not None and project.builds_enabled and not project.archived


def queue_prefix(project: tables.Project | None) -> str | None:
    """The beginning of the names of the project's queues; None if runners take no builds of it."""
    if project is None or not has_builds(project):
        return None
    return "" if project.shared_runners_enabled else OWN_RUNNERS_PREFIX


def queue_name(project: tables.Project | None, tags: Collection[str]) -> str | None:
    """The name of the queue for the project's builds that require exactly these tags; None if runners take no builds of it."""
    prefix = queue_prefix(project)
    return None if prefix is None else prefix + ",".join(sorted(set(tags)))


def accepted_queues(oldest_builds: Mapping[str, int], runner: tables.Runner) -> dict[str, int]:
    """The queues whose builds a runner may run. Most are left out by their first tag, because a project can make thousands of them."""
    first_tags = {"", *runner.tags}
    return {
        queue: oldest
        for queue, oldest in oldest_builds.items()
        if queue.removeprefix(OWN_RUNNERS_PREFIX).partition(",")[0] in first_tags and accepts_queue(queue, runner)
    }


def accepts_queue(queue: str, runner: tables.Runner) -> bool:
    """Whether a runner may run the builds of a queue."""
    tags = queue.removeprefix(OWN_RUNNERS_PREFIX)
    if runner.shared and tags != queue:
        return False
    return set(tags.split(",")) <= set(runner.tags) if tags else runner.run_untagged
