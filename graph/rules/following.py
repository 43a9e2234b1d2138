"""Following builds: what may be asked for."""

from collections.abc import Sequence

from graph.context import Context
from graph.errors import BadRequest, LimitExceeded
from graph.live import Wanted
from graph.rules import finding
from graph.rules.policy import Action, require

MOST_PROJECTS = 50
MOST_REFS = 100


async def builds(context: Context, projects: Sequence[str] | None, refs: Sequence[str] | None, after_seq: str | None) -> Wanted:
    """Raises NotFound and Forbidden for a project whose builds the viewer does not see, BadRequest, LimitExceeded."""
    for what, names, most in (("projects", projects, MOST_PROJECTS), ("refs", refs, MOST_REFS)):
        if names is not None and len(names) > most:
            raise LimitExceeded(f"At most {most} {what} can be named. Name none to follow all, or open another stream.")
    ids: set[int] | None = None if projects is None else set()
    for path in dict.fromkeys(projects or ()):
        found = await finding.project(context, path)
        await require(context, Action.READ_BUILD, found)
        assert ids is not None  # noqa: S101
        ids.add(found.id)
    return Wanted(
        frozenset(ids) if ids is not None else None,
        frozenset(refs) if refs is not None else None,
        sequence_number(after_seq) if after_seq is not None else None,
    )


def sequence_number(text: str) -> int:
    """Raises BadRequest for what no event has as its `seq`."""
    number = 0 if text == "0" else finding.as_id(text)
    if number is None:
        raise BadRequest("`afterSeq` is the `seq` of an event that you were sent, or 0.")
    return number
