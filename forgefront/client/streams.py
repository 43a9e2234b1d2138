"""What a client with subscriptions has in it besides: it reads Server-Sent Events, and goes on after the last one when it is cut."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from forgefront.client.runtime import Unset, _answered, _AsyncClient, _Client, _data_of

# ---
_SILENCE_SECONDS = 45.0
"""The service says something each 15 seconds; who is silent for so long is gone."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_PASSING = frozenset((429, 502, 503, 504))
"""Statuses that pass: of a service that is being started again, and of one that has not
yet noticed that the last connection is cut, and counts it."""


@dataclass(slots=True)
class _Following:
    """Where a stream stands, over all its connections."""

    last: str | None = None
    pause: float = _FIRST_PAUSE
    begun: bool = False
    ended: bool = False

    def headers(self) -> dict[str, str]:
        sent = {"Accept": "text/event-stream"}
        if self.last is not None:
            sent["Last-Event-ID"] = self.last
        return sent

    def begins(self, response: httpx.Response) -> bool:
        """Whether events follow; else it is tried again. Raises what is answered."""
        kind = response.headers.get("content-type", "")
        if response.status_code == 200 and kind.startswith("text/event-stream"):
            self.begun = True
            return True
        if self.begun and response.status_code in _PASSING:
            after = response.headers.get("retry-after", "")
            self.pause = max(self.pause, float(after) if after.isdecimal() else 0.0)
            return False
        _answered(response)
        raise AssertionError("an answer that is no stream")

    def waits(self) -> float:
        """Seconds until the next connection."""
        seconds, self.pause = self.pause, min(self.pause * 2, _LONGEST_PAUSE)
        return seconds


class _Events:
    """Makes answers of the bytes of one connection."""

    def __init__(self, following: _Following) -> None:
        self._following = following
        self._rest = b""
        self._fields: dict[bytes, bytes] = {}

    def answers(self, received: bytes) -> Iterator[Any]:
        *lines, self._rest = (self._rest + received).split(b"\n")
        for line in lines:
            if line:
                name, _, value = line.partition(b":")
                self._fields[name] = value.removeprefix(b" ")
                continue
            found, self._fields = self._fields, {}
            if found.get(b"event") == b"complete":
                self._following.ended = True
                return
            if b"id" in found:
                # Also without an event: then it says how far the stream has come.
                self._following.last = found[b"id"].decode()
            if found.get(b"event") == b"next":
                self._following.pause = _FIRST_PAUSE
                yield _data_of(json.loads(found[b"data"]), 200)


def _patience(usual: float | None, given: float | Unset | None) -> httpx.Timeout:
    seconds = usual if isinstance(given, Unset) else given
    return httpx.Timeout(seconds, read=_SILENCE_SECONDS)


def _follow(
    client: _Client,
    asked: dict[str, Any],
    seconds: float | Unset | None,
) -> Iterator[Any]:
    following = _Following()
    while True:
        events = _Events(following)
        try:
            with client._http.stream(
                "POST",
                client._url,
                json=asked,
                headers={**client._headers, **following.headers()},
                timeout=_patience(client._timeout, seconds),
            ) as response:
                if response.status_code != 200:
                    response.read()
                if following.begins(response):
                    for received in response.iter_bytes():
                        yield from events.answers(received)
                        if following.ended:
                            return
        except httpx.TransportError:
            if not following.begun:
                raise
        time.sleep(following.waits())


async def _follow_async(
    client: _AsyncClient,
    asked: dict[str, Any],
    seconds: float | Unset | None,
) -> AsyncIterator[Any]:
    following = _Following()
    while True:
        events = _Events(following)
        try:
            async with client._http.stream(
                "POST",
                client._url,
                json=asked,
                headers={**client._headers, **following.headers()},
                timeout=_patience(client._timeout, seconds),
            ) as response:
                if response.status_code != 200:
                    await response.aread()
                if following.begins(response):
                    async for received in response.aiter_bytes():
                        for answer in events.answers(received):
                            yield answer
                        if following.ended:
                            return
        except httpx.TransportError:
            if not following.begun:
                raise
        await asyncio.sleep(following.waits())
