"""Where dumps lie: files, and objects `s3://BUCKET/KEY`. A dump appears only when it is complete."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from storage.disk_sync import create_file
from storage.dump.dump_format import DumpError
from storage.dump.dump_reader import DumpInput
from storage.dump.dump_writer import DumpOutput

BUCKET_SCHEME = "s3://"
PART_BYTES = 32 * 2**20
"""Of a multipart upload; S3 allows 10,000 parts, so a dump in a bucket has at most 312 GiB."""
MAX_CONCURRENT_PARTS = 2
READ_BUFFER_BYTES = 8 * 2**20


@contextlib.contextmanager
def create_dump(location: str, s3_settings: Mapping[str, str]) -> Iterator[DumpOutput]:
    """The stream of a new dump. If the block raises, nothing is left. Raises DumpError if it exists already, OSError."""
    if location.startswith(BUCKET_SCHEME):
        with _create_object(location, s3_settings) as output:
            yield output
        return
    path = Path(location)
    if path.exists():
        raise DumpError(f"{location} exists already; name a new file")
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(create_file(path))
        except OSError as error:
            raise DumpError(f"{location} cannot be written: {error.strerror}") from None
        yield file
        try:
            stack.close()
        except FileExistsError:
            raise DumpError(f"{location} exists already; name a new file") from None


@contextlib.contextmanager
def open_dump(location: str, s3_settings: Mapping[str, str]) -> Iterator[DumpInput]:
    """The stream of a dump, from its beginning. Raises DumpError if there is none, OSError."""
    if location.startswith(BUCKET_SCHEME):
        from obstore import open_reader

        store, key = _split(location, s3_settings)
        try:
            with _translate_errors():
                stream = open_reader(store, key, buffer_size=READ_BUFFER_BYTES)
        except FileNotFoundError:
            raise DumpError(f"there is no dump {location}") from None
        yield _BucketFile(stream)
        return
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(Path(location).open("rb"))
        except FileNotFoundError:
            raise DumpError(f"there is no dump {location}") from None
        yield file


@contextlib.contextmanager
def _create_object(location: str, s3_settings: Mapping[str, str]) -> Iterator[DumpOutput]:
    from obstore import head, open_writer

    store, key = _split(location, s3_settings)
    with contextlib.suppress(FileNotFoundError), _translate_errors():
        head(store, key)
        raise DumpError(f"{location} exists already; name a new object")
    output = open_writer(store, key, buffer_size=PART_BYTES, max_concurrency=MAX_CONCURRENT_PARTS)
    # Without `close` the upload is aborted.
    yield _BucketFile(output)
    with _translate_errors():
        output.close()


class _BucketFile:
    """A file of obstore that raises the errors of an object store."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def read(self, size: int, /) -> bytes:
        with _translate_errors():
            return bytes(self._file.read(size))

    def write(self, data: bytes, /) -> object:
        with _translate_errors():
            return self._file.write(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        with _translate_errors():
            return int(self._file.seek(offset, whence))


def _translate_errors() -> contextlib.AbstractContextManager[None]:
    from storage.objects.bucket_store import translate_errors

    return translate_errors()


def _split(location: str, s3_settings: Mapping[str, str]) -> tuple[Any, str]:
    from storage.objects.bucket_store import open_bucket

    bucket, _, key = location.removeprefix(BUCKET_SCHEME).partition("/")
    if not bucket or not key or key.endswith("/"):
        raise DumpError(f"{location} must be an address such as s3://bucket/forge.tar")
    return open_bucket(f"{BUCKET_SCHEME}{bucket}", s3_settings), key
