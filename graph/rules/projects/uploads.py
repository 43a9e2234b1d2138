"""What an upload may be, and how it comes and goes.

In the order that survives a crash at any point:
1. Outside the transaction the file is received and brought to the disk under a ticket. What a kill leaves here is swept at the next start.
2. The transaction writes the row and renames the file to its place; both are quick.
3. The commit shows the row, so whoever sees it finds the whole file. When the commit fails the file is removed again. What a kill
   leaves here has no row: nobody can reach it, and `remove_orphans` takes it.

A deletion goes the other way: the rows with the commit, and then the files.
"""

import asyncio
import re
from pathlib import PurePosixPath

import structlog

from graph.context import Context, Services
from graph.errors import Invalid, NotFound, TooLarge
from graph.rules import settings
from storage import tables
from storage.objects.uploads import new_secret
from storage.tables import uploads

MEGABYTE = 2**20
MAX_FILENAME_LENGTH = 255
MAX_LINKS = 20
"""Links of a text that are looked at."""

IMAGE_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "bmp": "image/bmp",
    "tiff": "image/tiff",
}
"""The endings of files that a browser may be told the kind of: pictures that cannot hold a script, unlike SVG."""

UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9._+-]")
LINK_PATTERN = re.compile(r"/uploads/([0-9a-f]{32})/([A-Za-z0-9._+-]{1,255})")

ORPHAN_AGE_SECONDS = 3600.0
"""Seconds. No transaction takes as long, so an older file without a row was left by a kill."""
BATCH_SIZE = 500

log = structlog.get_logger("graph")


def sanitize_filename(raw_name: str) -> str:
    """The name under which a file is kept: without folders, of letters that need no escaping in a link. Raises Invalid.

    >>> sanitize_filename("C:\\\\My pictures\\\\Überblick 1.png")
    '_berblick_1.png'
    """
    name = UNSAFE_CHARACTERS.sub("_", re.split(r"[/\\]", raw_name)[-1])
    if not name.strip("."):
        name = f"_{name}"
    if len(name) > MAX_FILENAME_LENGTH:
        stem, dot, ending = name.rpartition(".")
        name = (
            stem[: MAX_FILENAME_LENGTH - len(ending) - 1] + dot + ending
            if stem and len(ending) < MAX_FILENAME_LENGTH - 1
            else name[:MAX_FILENAME_LENGTH]
        )
    return name


def content_type_of(upload: tables.Upload) -> str:
    """What a browser is told: the kind of a picture, else that nobody knows."""
    return IMAGE_TYPES.get(_split_extension(upload.name)[1], "application/octet-stream")


def is_image(upload: tables.Upload) -> bool:
    return _split_extension(upload.name)[1] in IMAGE_TYPES


def alt_text(upload: tables.Upload) -> str:
    """The text of a link to it: a picture's name without its ending (wire facts 14)."""
    return _split_extension(upload.name)[0] if is_image(upload) else upload.name


def _split_extension(name: str) -> tuple[str, str]:
    """The name without its ending, and the ending in lower case; a name that begins with its only dot has none."""
    path = PurePosixPath(name)
    return path.stem, path.suffix[1:].lower()


def upload_path(upload: tables.Upload) -> str:
    """Where it stands below its project's page."""
    return f"/uploads/{upload.secret}/{upload.name}"


async def load_max_bytes(context: Context) -> int:
    """The most bytes of a file, which administrators set in megabytes."""
    return (await settings.load_settings(context)).max_attachment_size * MEGABYTE


async def save_upload(context: Context, project: tables.Project, ticket: str, name: str) -> tables.Upload:
    """Gives a received file to the project. Raises Invalid for a ticket of nothing, TooLarge."""
    files = context.services.uploads
    size = await asyncio.to_thread(files.received_size, ticket)
    if size is None:
        raise Invalid("file", "was not received")
    max_bytes = await load_max_bytes(context)
    if size > max_bytes:
        raise TooLarge("file", f"is too big (should be at most {max_bytes // MEGABYTE} MB)")
    upload = await context.add(
        tables.Upload(
            project_id=project.id,
            author_id=context.viewer.id,
            secret=new_secret(),
            name=sanitize_filename(name),
            size=size,
            created_at=context.now(),
        )
    )
    project_id, secret, services = project.id, upload.secret, context.services
    context.undo.append(lambda: _undo_save(services, project_id, secret))
    await asyncio.to_thread(files.store, ticket, project_id, secret)
    return upload


async def get_upload(context: Context, project: tables.Project, secret: str, name: str) -> tables.Upload:
    """Raises NotFound."""
    upload = await context.first(uploads.of_project(project.id, [secret]))
    if upload is None or upload.name != name:
        raise NotFound("Upload")
    return upload


async def find_linked_name(context: Context, project_id: int, text: str) -> str | None:
    """The name of the first upload of the project that a text links to, as `[x](/uploads/SECRET/NAME)`."""
    if "/uploads/" not in text:
        return None
    links = [match.groups() for match, _ in zip(LINK_PATTERN.finditer(text), range(MAX_LINKS), strict=False)]
    if not links:
        return None
    existing = {
        (upload.secret, upload.name) for upload in await context.all(uploads.of_project(project_id, [secret for secret, _ in links]))
    }
    return next((name for secret, name in links if (secret, name) in existing), None)


async def remove_orphans(services: Services) -> None:
    """Removes the files that no row knows."""
    files = services.uploads
    old = await asyncio.to_thread(lambda: list(files.list_older_than(ORPHAN_AGE_SECONDS)))
    for start in range(0, len(old), BATCH_SIZE):
        part = old[start : start + BATCH_SIZE]
        async with services.database.read_session() as session:
            rows = {secret for (secret,) in await session.read(uploads.existing_secrets([secret for _, secret in part]))}
        orphans = [(project_id, secret) for project_id, secret in part if secret not in rows]
        for project_id, secret in orphans:
            await asyncio.to_thread(files.remove, project_id, secret)
        if orphans:
            log.info("files of no upload removed", number=len(orphans))


async def _undo_save(services: Services, project_id: int, secret: str) -> None:
    # The answer to a commit may have got lost: the row then stands, and so must the file.
    try:
        async with services.database.read_session() as session:
            known = await session.read(uploads.existing_secrets([secret]))
        if not known:
            await asyncio.to_thread(services.uploads.remove, project_id, secret)
    except Exception as error:
        log.error("file of no upload left", project_id=project_id, exc_info=error)
