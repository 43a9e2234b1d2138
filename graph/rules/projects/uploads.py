"""Validation of uploads, and their creation and deletion together with the file.

A creation takes these steps, in an order that survives a crash at any point:

1. Outside the transaction, receive the file and write it to disk under a ticket. The next start removes what a crash leaves here.
2. In the transaction, insert the row and rename the file to its final path; both are fast.
3. Commit, which makes the upload visible together with the complete file. When the commit fails, the file is removed. After a crash
   here the file has no row: nobody can reach it, and `remove_orphans` removes it.

A deletion goes the other way: the commit deletes the rows, then the files are removed.
"""

import asyncio
import re
from pathlib import PurePosixPath

import structlog

from graph.context import Context, Services
from graph.errors import Invalid, NotFound, TooLarge, Unavailable
from graph.rules import settings
from storage import tables
from storage.objects.uploads import new_secret
from storage.tables.projects import uploads

MEGABYTE = 2**20
MAX_FILENAME_LENGTH = 255
MAX_LINKS = 20
"""Links of one Markdown string that are resolved."""

IMAGE_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "bmp": "image/bmp",
    "tiff": "image/tiff",
}
"""Declared media types by file extension: images that cannot contain a script, unlike SVG."""

UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9._+-]")
LINK_PATTERN = re.compile(r"/uploads/([0-9a-f]{32})/([A-Za-z0-9._+-]{1,255})")

ORPHAN_AGE_SECONDS = 3600.0
"""No transaction takes this long, so an older file without a row is left over from a crash."""
BATCH_SIZE = 500

log = structlog.get_logger("graph")


def sanitize_filename(raw_name: str) -> str:
    """The stored file name, without folders or characters that need escaping in a link. Raises Invalid.

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
    """The declared media type: that of an image, otherwise `application/octet-stream`."""
    return IMAGE_TYPES.get(_split_extension(upload.name)[1], "application/octet-stream")


def is_image(upload: tables.Upload) -> bool:
    return _split_extension(upload.name)[1] in IMAGE_TYPES


def alt_text(upload: tables.Upload) -> str:
    """The text of a link to the upload: the file name, for images without the extension (docs/wire-facts.md 14)."""
    return _split_extension(upload.name)[0] if is_image(upload) else upload.name


def _split_extension(name: str) -> tuple[str, str]:
    """Split the name into stem and lower-case extension.

    A name whose only dot is its first character has none.
    """
    path = PurePosixPath(name)
    return path.stem, path.suffix[1:].lower()


def upload_path(upload: tables.Upload) -> str:
    """The path of the upload below its project's page."""
    return f"/uploads/{upload.secret}/{upload.name}"


async def load_max_bytes(context: Context) -> int:
    """The maximum size of a file in bytes; the setting is in megabytes."""
    return (await settings.load_settings(context)).max_attachment_size * MEGABYTE


async def save_upload(context: Context, project: tables.Project, ticket: str, name: str) -> tables.Upload:
    """Store a received file as an upload of the project. Raises Invalid for an unknown ticket, TooLarge."""
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
    await store_received(context, ticket, project.id, upload.secret)
    return upload


async def store_received(context: Context, ticket: str, project_id: int, secret: str) -> None:
    """Store a received file in the transaction that inserts its row. Raises Unavailable."""
    services = context.services
    context.undo.append(lambda: _undo_save(services, project_id, secret))
    try:
        await services.uploads.publish(ticket, project_id, secret)
    except ConnectionError as error:
        log.error("upload could not be stored", project_id=project_id, error=str(error))
        raise Unavailable("The object store of the service cannot be reached; nothing was changed. Try again.") from error


async def get_upload(context: Context, project: tables.Project, secret: str, name: str) -> tables.Upload:
    """The upload with this secret and this name. Raises NotFound."""
    upload = await context.first(uploads.of_project(project.id, [secret]))
    if upload is None or upload.name != name:
        raise NotFound("Upload")
    return upload


async def find_linked_name(context: Context, project_id: int, text: str) -> str | None:
    """The name of the first upload of the project that a string links to, as `[x](/uploads/SECRET/NAME)`."""
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
    """Remove files without a row."""
    files = services.uploads
    old = await files.list_old(ORPHAN_AGE_SECONDS)
    for start in range(0, len(old), BATCH_SIZE):
        part = old[start : start + BATCH_SIZE]
        async with services.database.read_session() as session:
            rows = {secret for (secret,) in await session.read(uploads.existing_secrets([secret for _, secret in part]))}
        orphans = [(project_id, secret) for project_id, secret in part if secret not in rows]
        for project_id, secret in orphans:
            await files.erase(project_id, secret)
        if orphans:
            log.info("orphaned upload files removed", number=len(orphans))


async def _undo_save(services: Services, project_id: int, secret: str) -> None:
    # The response to the commit may have been lost: then the row exists, and the file must stay.
    try:
        async with services.database.read_session() as session:
            known = await session.read(uploads.existing_secrets([secret]))
        if not known:
            await services.uploads.erase(project_id, secret)
    except Exception as error:
        log.error("orphaned upload file could not be removed", project_id=project_id, exc_info=error)
