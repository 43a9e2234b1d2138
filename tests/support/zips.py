"""Zip archives for tests."""

import io
import zipfile
from collections.abc import Mapping


def pack_files(files: Mapping[str, bytes | str]) -> bytes:
    """A zip archive with these files, by their paths."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return buffer.getvalue()
