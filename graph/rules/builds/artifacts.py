"""Artifacts: what a build may leave, who may send it, and how it comes and goes (RELIABILITY R17, R18).

Whoever may write a build asks for an address, which is good for one upload. What is sent there is streamed to the object store, and only
then its row is written, so whoever sees an artifact finds the whole of it. `graph/rules/builds/stored_objects.py` has the order of effects.
"""

import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson

from graph.context import Context, Services, StoredFile
from graph.errors import Conflict, Forbidden, Invalid, NotAllowed, NotFound, TooLarge
from graph.rules.builds import builds, trace_masking
from graph.rules.builds.stored_objects import erase_after_commit
from graph.rules.policy import Action, require
from storage import tables
from storage.secrets import UndecryptableToken
from storage.tables import CheckStatus, artifacts

MAX_FILENAME_BYTES = 255
"""Bytes in UTF-8, which is what folders take."""
UPLOAD_PATH = "/-/artifacts/"
UPLOAD_LIFETIME = timedelta(hours=1)
"""How long an upload may begin at an address."""
GRANT_KIND = "artifact upload"
"""Tells a ticket from whatever else this instance has encrypted."""


@dataclass(frozen=True, slots=True)
class UploadTarget:
    """Where an artifact can be sent, by a plain PUT."""

    url: str
    max_bytes: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class UploadGrant:
    """What a ticket says: one change of what this attempt of the build has left, from what it was (an artifact's id, 0 for none).

    `user_id` is 0 where a runner asked; `digest` is then that of the token which the build was given to it with.
    """

    build_id: int
    attempt: int
    replaced_id: int
    user_id: int
    """Who asked; 0 where it was the runner that has the build."""
    token_digest: str
    """That of the token with which the runner was given the build."""
    filename: str
    expires_at: float
    digest: str = ""


def sanitize_filename(raw_name: str) -> str:
    """The name that is told to those who fetch it: no folders, nothing that is not seen, at most 255 bytes.

    >>> sanitize_filename("C:\\\\Reports\\\\Überblick\\n 1.zip")
    'Überblick 1.zip'
    >>> sanitize_filename("../..")
    'artifact'
    """
    last = re.split(r"[/\\]", raw_name)[-1]
    name = "".join(letter for letter in last if unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")).strip()
    if not name.strip("."):
        return "artifact"
    stem, dot, ending = name.rpartition(".")
    if len(name.encode()) > MAX_FILENAME_BYTES:
        suffix = f"{dot}{ending}" if stem and len(ending.encode()) < 32 else ""
        name = _truncate_bytes(stem if suffix else name, MAX_FILENAME_BYTES - len(suffix.encode())) + suffix
    return name


def _truncate_bytes(string: str, max_bytes: int) -> str:
    return string.encode()[:max_bytes].decode(errors="ignore")


async def require_write_access(context: Context, build: tables.Build) -> None:
    """Who may append to the trace of a build and give it an artifact: developers, and the runner that has it. Raises Forbidden."""
    runner_identity = context.runner_identity_or_none
    if runner_identity is None:
        await require(context, Action.UPDATE_BUILD, build)
    elif not runner_identity.is_assigned(build):
        raise Forbidden


async def create_upload_target(context: Context, build: tables.Build, filename: str, size: int | None) -> UploadTarget:
    """For who may write it, an address to send the build's artifact to. Raises NotAllowed for an erased or earlier run, TooLarge."""
    _require_writable(build)
    max_bytes = context.services.max_artifact_bytes
    if size is not None and size < 0:
        raise Invalid("size", "must not be negative")
    if size is not None and size > max_bytes:
        raise TooLarge("size", f"is too big (should be at most {max_bytes} bytes)")
    current = await _find_artifact_of(context, build.id)
    expires_at = context.now() + UPLOAD_LIFETIME
    runner_identity = context.runner_identity_or_none
    user_id, digest = (0, build.token_digest or "") if runner_identity is not None else (context.viewer.id, "")
    # Everyone who sees the build sees the name.
    masker = trace_masking.create_masker(context, build)
    name = masker.mask(sanitize_filename(masker.mask(filename)))
    upload_grant = UploadGrant(build.id, build.attempt, current.id if current else 0, user_id, digest, name, expires_at.timestamp())
    return UploadTarget(f"{context.services.external_url}{UPLOAD_PATH}{_encrypt_grant(context, upload_grant)}", max_bytes, expires_at)


def _encrypt_grant(context: Context, upload_grant: UploadGrant) -> str:
    return context.services.cipher.encrypt(
        orjson.dumps([GRANT_KIND, *(getattr(upload_grant, name) for name in upload_grant.__slots__)]).decode()
    )


def decrypt_grant(services: Services, ticket: str) -> UploadGrant:
    """What a ticket says. Raises NotFound for one that this instance never gave, Forbidden for one that has expired."""
    try:
        kind, *values = orjson.loads(services.cipher.decrypt(ticket))
    except (UndecryptableToken, ValueError, TypeError):
        raise NotFound("Upload") from None
    if kind != GRANT_KIND:
        raise NotFound("Upload")
    upload_grant = UploadGrant(*values)
    if services.clock().timestamp() > upload_grant.expires_at:
        raise Forbidden("This address has expired.")
    return upload_grant


async def require_valid_grant(context: Context, upload_grant: UploadGrant, build: tables.Build) -> None:
    """Whether who asked for the ticket may write the build still, and it is as it was when the ticket was given.

    Raises Forbidden, NotAllowed, Conflict for a ticket that was used.
    """
    if upload_grant.user_id:
        await require_write_access(context, build)
    elif build.status is not CheckStatus.RUNNING or build.token_digest != upload_grant.token_digest:
        raise Forbidden("The build was taken from this runner.")
    _require_writable(build)
    current = await _find_artifact_of(context, build.id)
    if build.attempt != upload_grant.attempt or (current.id if current else 0) != upload_grant.replaced_id:
        raise Conflict(None, "This address was used, or the build has got another artifact or attempt since.")


def _require_writable(build: tables.Build) -> None:
    if build.current_id is not None:
        raise NotAllowed("id", "An earlier attempt stays as it was.")
    if build.erased_at is not None:
        raise NotAllowed("id", "Build has been erased!")


async def attach_upload(context: Context, upload_grant: UploadGrant, key: str, size: int) -> tables.Artifact:
    """Gives the build the object as its artifact, in place of an earlier one, which is erased after the commit. Raises as
    `require_valid_grant`, NotFound."""
    build = await builds.lock_build(context, upload_grant.build_id)
    await require_valid_grant(context, upload_grant, build)
    return await replace(context, build, upload_grant.filename, key, size)


async def replace(context: Context, build: tables.Build, filename: str, key: str, size: int) -> tables.Artifact:
    """The row for an object that is there; `build` is held. The artifact that the build had goes."""
    await remove(context, build)
    return await context.add(
        tables.Artifact(
            project_id=build.project_id,
            build_id=build.id,
            filename=sanitize_filename(filename),
            size=size,
            key=key,
            created_at=context.now(),
        )
    )


async def remove(context: Context, build: tables.Build) -> int | None:
    """Takes the artifact of a held build away; returns its id, or None where there was none."""
    old = await _find_artifact_of(context, build.id)
    if old is None:
        return None
    await context.session.delete(old)
    await context.session.flush()
    erase_after_commit(context, [old.key])
    return old.id


async def find_artifact(context: Context, project: tables.Project, build_id: int) -> tables.Artifact | None:
    """The artifact of a build of the project, also of a superseded attempt. Raises Forbidden."""
    await require(context, Action.READ_BUILD, project)
    return await context.first(artifacts.of_build(project.id, build_id))


def build_download_url(context: Context, artifact: tables.Artifact) -> str:
    """Where it is fetched, with a private token."""
    return f"{context.services.external_url}/api/v3/projects/{artifact.project_id}/builds/{artifact.build_id}/artifacts"


def offer_download(context: Context, artifact: tables.Artifact) -> str:
    """Lets the door that runs this operation send its bytes: what it asks them by."""
    handle = str(artifact.id)
    context.files[handle] = StoredFile(context.services.objects, artifact.key, artifact.filename, artifact.size)
    return handle


def artifact_loader(context: Context) -> Any:
    """The loader of artifacts by the id of their build."""

    async def fetch(ids: list[int]) -> dict[int, tables.Artifact]:
        return {row.build_id: row for row in await context.all(artifacts.of_builds(ids))}

    return context.loader("artifacts of builds", fetch)


async def _find_artifact_of(context: Context, build_id: int) -> tables.Artifact | None:
    return await context.first(artifacts.of_builds([build_id]))
