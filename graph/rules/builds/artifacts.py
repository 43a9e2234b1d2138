"""Artifacts of builds: upload grants, upload, replacement and download (docs/promises.md R17, R18).

A caller that may write a build requests an upload URL, which is valid for one upload. The server streams the body to the object store
and only then inserts the row, so every visible artifact is complete. `graph/rules/builds/stored_objects.py` describes the order of
effects.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import orjson

from graph.context import Context, Services
from graph.errors import Conflict, Forbidden, Invalid, NotAllowed, NotFound, TooLarge
from graph.rules.builds import artifact_expiry, builds, trace_masking
from graph.rules.builds.stored_objects import erase_after_commit
from graph.rules.permissions.policy import Action, require
from graph.served_files import StoredFile
from storage import tables
from storage.secrets import UndecryptableToken
from storage.tables import CheckStatus
from storage.tables.builds import artifacts

MAX_FILENAME_BYTES = 255
"""Bytes in UTF-8, the limit of common file systems."""
UPLOAD_PATH = "/-/artifacts/"
UPLOAD_LIFETIME = timedelta(hours=1)
"""How long an upload may begin after its URL was issued."""
GRANT_KIND = "artifact upload"
"""Distinguishes the tickets of upload grants from other strings that this instance encrypts."""


@dataclass(frozen=True, slots=True)
class UploadTarget:
    """The URL to which an artifact is uploaded by PUT."""

    url: str
    max_bytes: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class UploadGrant:
    """The permission for one upload, encrypted in a ticket.

    It is valid for one attempt of the build and for one replacement of its artifact: `replaced_id` is the id of the current artifact, 0
    for none.
    """

    build_id: int
    attempt: int
    replaced_id: int
    user_id: int
    """The user who requested the grant; 0 when the runner of the build did."""
    token_digest: str
    """Digest of the build token that the runner had when it requested the grant; empty for a user."""
    filename: str
    expires_at: float
    digest: str = ""


def sanitize_filename(raw_name: str) -> str:
    """The download name: without folders and invisible characters, at most 255 bytes.

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
    """Require that the caller may append to the build's trace and upload its artifact. Raises Forbidden.

    Developers may, and the runner to which the build is assigned.
    """
    runner_identity = context.runner_identity_or_none
    if runner_identity is None:
        await require(context, Action.UPDATE_BUILD, build)
    elif not runner_identity.is_assigned(build):
        raise Forbidden


async def create_upload_target(context: Context, build: tables.Build, filename: str, size: int | None) -> UploadTarget:
    """An upload URL for the build's artifact, for a caller that may write it.

    Raises NotAllowed for an erased build or an earlier attempt, TooLarge, Invalid.
    """
    _require_writable(build)
    max_bytes = context.services.max_artifact_bytes
    if size is not None and size < 0:
        raise Invalid("size", "must not be negative")
    if size is not None and size > max_bytes:
        raise TooLarge("size", f"is too big (should be at most {max_bytes} bytes)")
    current = await _find_build_artifact(context, build.id)
    expires_at = context.now() + UPLOAD_LIFETIME
    runner_identity = context.runner_identity_or_none
    user_id, digest = (0, build.token_digest or "") if runner_identity is not None else (context.viewer.id, "")
    # The name is visible to everyone who may see the build, so secrets in it are masked.
    masker = await trace_masking.create_masker(context, build)
    name = masker.mask(sanitize_filename(masker.mask(filename)))
    upload_grant = UploadGrant(build.id, build.attempt, current.id if current else 0, user_id, digest, name, expires_at.timestamp())
    return UploadTarget(f"{context.services.external_url}{UPLOAD_PATH}{_encrypt_grant(context, upload_grant)}", max_bytes, expires_at)


def _encrypt_grant(context: Context, upload_grant: UploadGrant) -> str:
    return context.services.cipher.encrypt(
        orjson.dumps([GRANT_KIND, *(getattr(upload_grant, name) for name in upload_grant.__slots__)]).decode()
    )


def decrypt_grant(services: Services, ticket: str) -> UploadGrant:
    """Decrypt the grant in a ticket.

    Raises NotFound for a ticket that this instance did not issue, Forbidden for an expired one.
    """
    try:
        kind, *values = orjson.loads(services.cipher.decrypt(ticket))
    except (UndecryptableToken, ValueError, TypeError):
        raise NotFound("Upload") from None
    if kind != GRANT_KIND:
        raise NotFound("Upload")
    upload_grant = UploadGrant(*values)
    if services.clock().timestamp() > upload_grant.expires_at:
        raise Forbidden("The upload URL has expired. Request another one.")
    return upload_grant


async def require_valid_grant(context: Context, upload_grant: UploadGrant, build: tables.Build) -> None:
    """Require that the holder of the grant may still write the build, which has not changed since.

    Raises Forbidden, NotAllowed, and Conflict when the grant was used.
    """
    if upload_grant.user_id:
        await require_write_access(context, build)
    elif build.status is not CheckStatus.RUNNING or build.token_digest != upload_grant.token_digest:
        raise Forbidden("The build is no longer assigned to this runner.")
    _require_writable(build)
    current = await _find_build_artifact(context, build.id)
    if build.attempt != upload_grant.attempt or (current.id if current else 0) != upload_grant.replaced_id:
        raise Conflict(None, "The upload URL was already used, or the build has another artifact or attempt now. Request another one.")


def _require_writable(build: tables.Build) -> None:
    if build.current_id is not None:
        raise NotAllowed("id", "A superseded attempt cannot be changed.")
    if build.erased_at is not None:
        raise NotAllowed("id", "Build has been erased!")


async def attach_upload(context: Context, upload_grant: UploadGrant, key: str, size: int) -> tables.Artifact:
    """Make the stored object the artifact of the build; an earlier one is erased after the commit.

    Raises as `require_valid_grant` does, NotFound.
    """
    build = await builds.lock_build(context, upload_grant.build_id)
    await require_valid_grant(context, upload_grant, build)
    return await replace(context, build, upload_grant.filename, key, size)


async def replace(context: Context, build: tables.Build, filename: str, key: str, size: int) -> tables.Artifact:
    """Insert the row for a stored object and delete the build's current artifact.

    The caller has locked `build`.
    """
    await remove(context, build)
    build.artifacts_expired_at = None
    return await context.add(
        tables.Artifact(
            project_id=build.project_id,
            build_id=build.id,
            filename=sanitize_filename(filename),
            size=size,
            key=key,
            created_at=context.now(),
            expires_at=artifact_expiry.expires_at(build, context.now()),
        )
    )


async def remove(context: Context, build: tables.Build) -> int | None:
    """Delete the artifact of a locked build; returns its id, or None if there was none."""
    old = await _find_build_artifact(context, build.id)
    if old is None:
        return None
    await context.delete(old)
    erase_after_commit(context, [old.key])
    return old.id


async def find_artifact(context: Context, project: tables.Project, build_id: int) -> tables.Artifact | None:
    """The artifact of a build of the project, also of a superseded attempt. Raises Forbidden."""
    await require(context, Action.READ_BUILD, project)
    return await context.first(artifacts.of_build(project.id, build_id))


def build_download_url(context: Context, artifact: tables.Artifact) -> str:
    """The URL from which the artifact is downloaded with a private token."""
    return f"{context.services.external_url}/api/v3/projects/{artifact.project_id}/builds/{artifact.build_id}/artifacts"


def offer_download(context: Context, artifact: tables.Artifact) -> str:
    """Register the artifact for download; returns the handle under which the endpoint finds its bytes."""
    handle = str(artifact.id)
    context.files[handle] = StoredFile(context.services.objects, artifact.key, artifact.filename, artifact.size)
    return handle


async def load_artifacts(context: Context, build_ids: Sequence[int]) -> list[tables.Artifact | None]:
    """The artifacts of builds; one statement for all builds of a level."""

    async def fetch(ids: list[int]) -> dict[int, tables.Artifact]:
        return {row.build_id: row for (row,) in await context.tuples(artifacts.OF_BUILDS, build_ids=ids)}

    found = await context.loader("artifacts of builds", fetch).get_many(build_ids)
    return [found[key] for key in build_ids]


async def load_download_urls(context: Context, build_ids: Sequence[int]) -> list[str | None]:
    """The URLs of the artifacts of builds in the v3 API; None for a build without one."""
    found = await load_artifacts(context, build_ids)
    return [None if artifact is None else build_download_url(context, artifact) for artifact in found]


async def _find_build_artifact(context: Context, build_id: int) -> tables.Artifact | None:
    return await context.first(artifacts.of_builds([build_id]))
