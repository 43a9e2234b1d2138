"""Reads the authorities of the system once: each client of httpx reads them again, which takes longer than an ordinary test."""

import os
import ssl
from functools import cache
from typing import Any


def install() -> None:
    """Makes the programs of this process, and those forked from it, share the contexts that they create with the same arguments."""
    create = ssl.create_default_context

    @cache
    def read(_: tuple[str | None, ...], *arguments: Any, **settings: Any) -> ssl.SSLContext:
        return create(*arguments, **settings)

    def create_default_context(*arguments: Any, **settings: Any) -> ssl.SSLContext:
        return read((os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")), *arguments, **settings)

    vars(ssl)["create_default_context"] = create_default_context
