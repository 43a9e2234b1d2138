"""Artifacts: what a build may leave, who may send it, and how it comes and goes (RELIABILITY R17, R18).

Whoever may write a build asks for an address, which is good for one upload. What is sent there is streamed to the object store, and only
then its row is written, so whoever sees an artifact finds the whole of it. `graph/rules/objects.py` has the order of effects.
"""

import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson

from graph.context import Context, Services, StoredFile
from graph.errors import Conflict, Forbidden, Invalid, NotAllowed, NotFound, TooLarge
from graph.rules import builds, trace_masking
from graph.rules.objects import erase_later
from graph.rules.policy import Action, require
from storage import tables
from storage.secrets import Undecipherable
from storage.tables import CheckStatus, artifacts

LONGEST_NAME = 255
"""Bytes in UTF-8, which is what folders take."""
DOOR = "/-/artifacts/"
OPEN_FOR = timedelta(hours=1)
"""How long an upload may begin at an address."""
KIND = "artifact upload"
"""Tells a ticket from whatever else this instance has encrypted."""


@dataclass(frozen=True, slots=True)
class Upload:
    """Where an artifact can be sent, by a plain PUT."""

    url: str
    max_bytes: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Permit:
    """What a ticket says: one change of what this attempt of the build has left, from what it was (an artifact's id, 0 for none).

    `user_id` is 0 where a runner asked; `digest` is then that of the token which the build was given to it with.
    """

    build_id: int
    attempt: int
    instead_of: int
    user_id: int
    """Who asked; 0 where it was the runner that has the build."""
    token_digest: str
    """That of the token with which the runner was given the build."""
    filename: str
    until: float
    digest: str = ""


def file_name(text: str) -> str:
    """The name that is told to those who fetch it: no folders, nothing that is not seen, at most 255 bytes.

    >>> file_name("C:\\\\Reports\\\\Überblick\\n 1.zip")
    'Überblick 1.zip'
    >>> file_name("../..")
    'artifact'
    """
    last = re.split(r"[/\\]", text)[-1]
    name = "".join(letter for letter in last if unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")).strip()
    if not name.strip("."):
        return "artifact"
    stem, dot, ending = name.rpartition(".")
    if len(name.encode()) > LONGEST_NAME:
        keeps = f"{dot}{ending}" if stem and len(ending.encode()) < 32 else ""
        name = _cut(stem if keeps else name, LONGEST_NAME - len(keeps.encode())) + keeps
    return name


def _cut(text: str, most: int) -> str:
    return text.encode()[:most].decode(errors="ignore")


async def may_write(context: Context, build: tables.Build) -> None:
    """Who may append to the trace of a build and give it an artifact: developers, and the runner that has it. Raises Forbidden."""
    machine = context.machine_or_none
    if machine is None:
        await require(context, Action.UPDATE_BUILD, build)
    elif not machine.has(build):
        raise Forbidden


async def grant(context: Context, build: tables.Build, filename: str, size: int | None) -> Upload:
    """For who may write it, an address to send the build's artifact to. Raises NotAllowed for an erased or earlier run, TooLarge."""
    _require_open(build)
    most = context.services.largest_artifact
    if size is not None and size < 0:
        raise Invalid("size", "must not be negative")
    if size is not None and size > most:
        raise TooLarge("size", f"is too big (should be at most {most} bytes)")
    now = await _of(context, build.id)
    until = context.now() + OPEN_FOR
    machine = context.machine_or_none
    user_id, digest = (0, build.token_digest or "") if machine is not None else (context.viewer.id, "")
    # Everyone who sees the build sees the name.
    masker = trace_masking.masker_of(context, build)
    name = masker.mask(file_name(masker.mask(filename)))
    permit = Permit(build.id, build.attempt, now.id if now else 0, user_id, digest, name, until.timestamp())
    return Upload(f"{context.services.external_url}{DOOR}{_sealed(context, permit)}", most, until)


def _sealed(context: Context, permit: Permit) -> str:
    return context.services.cipher.encrypt(orjson.dumps([KIND, *(getattr(permit, name) for name in permit.__slots__)]).decode())


def opened(services: Services, ticket: str) -> Permit:
    """What a ticket says. Raises NotFound for one that this instance never gave, Forbidden for one that has expired."""
    try:
        kind, *said = orjson.loads(services.cipher.decrypt(ticket))
    except (Undecipherable, ValueError, TypeError):
        raise NotFound("Upload") from None
    if kind != KIND:
        raise NotFound("Upload")
    permit = Permit(*said)
    if services.clock().timestamp() > permit.until:
        raise Forbidden("This address has expired.")
    return permit


async def require_good(context: Context, permit: Permit, build: tables.Build) -> None:
    """Whether who asked for the ticket may write the build still, and it is as it was when the ticket was given.

    Raises Forbidden, NotAllowed, Conflict for a ticket that was used.
    """
    if permit.user_id:
        await may_write(context, build)
    elif build.status is not CheckStatus.RUNNING or build.token_digest != permit.token_digest:
        raise Forbidden("The build was taken from this runner.")
    _require_open(build)
    now = await _of(context, build.id)
    if build.attempt != permit.attempt or (now.id if now else 0) != permit.instead_of:
        raise Conflict(None, "This address was used, or the build has got another artifact or attempt since.")


def _require_open(build: tables.Build) -> None:
    if build.current_id is not None:
        raise NotAllowed("id", "An earlier attempt stays as it was.")
    if build.erased_at is not None:
        raise NotAllowed("id", "Build has been erased!")


async def keep(context: Context, permit: Permit, key: str, size: int) -> tables.Artifact:
    """Gives the build the object as its artifact, in place of an earlier one, which is erased after the commit. Raises as
    `require_good`, NotFound."""
    build = await builds.hold(context, permit.build_id)
    await require_good(context, permit, build)
    return await replace(context, build, permit.filename, key, size)


async def replace(context: Context, build: tables.Build, filename: str, key: str, size: int) -> tables.Artifact:
    """The row for an object that is there; `build` is held. The artifact that the build had goes."""
    await remove(context, build)
    return await context.add(
        tables.Artifact(
            project_id=build.project_id, build_id=build.id, filename=file_name(filename), size=size, key=key, created_at=context.now()
        )
    )


async def remove(context: Context, build: tables.Build) -> int | None:
    """Takes the artifact of a held build away; returns its id, or None where there was none."""
    old = await _of(context, build.id)
    if old is None:
        return None
    await context.session.delete(old)
    await context.session.flush()
    erase_later(context, [old.key])
    return old.id


async def found(context: Context, project: tables.Project, build_id: int) -> tables.Artifact | None:
    """The artifact of a build of the project, also of a superseded attempt. Raises Forbidden."""
    await require(context, Action.READ_BUILD, project)
    return await context.first(artifacts.of_build(project.id, build_id))


def address(context: Context, artifact: tables.Artifact) -> str:
    """Where it is fetched, with a private token."""
    return f"{context.services.external_url}/api/v3/projects/{artifact.project_id}/builds/{artifact.build_id}/artifacts"


def offer(context: Context, artifact: tables.Artifact) -> str:
    """Lets the door that runs this operation send its bytes: what it asks them by."""
    handle = str(artifact.id)
    context.files[handle] = StoredFile(context.services.objects, artifact.key, artifact.filename, artifact.size)
    return handle


def of_builds(context: Context) -> Any:
    """The loader of artifacts by the id of their build."""

    async def fetch(ids: list[int]) -> dict[int, tables.Artifact]:
        return {row.build_id: row for row in await context.all(artifacts.of_builds(ids))}

    return context.loader("artifacts of builds", fetch)


async def _of(context: Context, build_id: int) -> tables.Artifact | None:
    return await context.first(artifacts.of_builds([build_id]))
