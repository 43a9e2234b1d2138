"""Code for subscriptions in clients: reads Server-Sent Events and reconnects."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from forgefront.client.runtime import Unset, _AsyncClient, _Client, _data_of, _decoded

# ---
_SILENCE_SECONDS = 45.0
"""The service sends something every 15 seconds; a longer silence means a disconnect."""
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.5, 30.0
_MAX_RETRY_AFTER_SECONDS = 3600.0
"""Maximum of a Retry-After that is honored."""
_RETRYABLE = frozenset((429, 502, 503, 504))
"""Temporary statuses: the service restarts, or it has not yet detected that the
previous connection is lost, and still counts it."""


@dataclass(slots=True)
class _StreamState:
    """The position of a stream, across all its connections."""

    last_event_id: str | None = None
    pause_seconds: float = _MIN_PAUSE_SECONDS
    is_started: bool = False
    is_ended: bool = False

    def headers(self) -> dict[str, str]:
        sent = {"Accept": "text/event-stream"}
        if self.last_event_id is not None:
            sent["Last-Event-ID"] = self.last_event_id
        return sent

    def accept(self, response: httpx.Response) -> bool:
        """Whether events follow; if not, retry. Raises the error of the response."""
        kind = response.headers.get("content-type", "")
        if response.status_code == 200 and kind.startswith("text/event-stream"):
            self.is_started = True
            return True
        if self.is_started and response.status_code in _RETRYABLE:
            seconds = _retry_after_seconds(response.headers.get("retry-after", ""))
            self.pause_seconds = max(self.pause_seconds, seconds)
            return False
        _decoded(response)
        raise AssertionError("a response that is not a stream")

    def next_pause(self) -> float:
        """Seconds until the next connection."""
        seconds = self.pause_seconds
        self.pause_seconds = min(seconds * 2, _MAX_PAUSE_SECONDS)
        return seconds


def _retry_after_seconds(value: str) -> float:
    """Seconds of a Retry-After header, a number or a date; 0 if it is neither."""
    if value.isdecimal():
        seconds = float(value)
    else:
        try:
            date = parsedate_to_datetime(value)
        except (TypeError, ValueError, OverflowError):
            return 0.0
        # asctime writes no zone, and means UTC.
        date = date.replace(tzinfo=dt.UTC) if date.tzinfo is None else date
        seconds = (date - dt.datetime.now(dt.UTC)).total_seconds()
    return min(max(0.0, seconds), _MAX_RETRY_AFTER_SECONDS)


class _EventParser:
    """Parses the bytes of one connection into results."""

    def __init__(self, state: _StreamState) -> None:
        self._state = state
        self._buffer = b""
        self._fields: dict[bytes, bytes] = {}
        self._is_first = True

    def parse(self, received: bytes) -> Iterator[Any]:
        *lines, self._buffer = (self._buffer + received).split(b"\n")
        for line in lines:
            if line:
                name, _, value = line.partition(b":")
                self._fields[name] = value.removeprefix(b" ")
                continue
            fields, self._fields = self._fields, {}
            if fields.get(b"event") == b"complete":
                self._state.is_ended = True
                return
            if b"id" in fields:
                # An id without an event reports the position of the stream.
                self._state.last_event_id = fields[b"id"].decode()
            if not self._is_first or fields.get(b"event") == b"next":
                # The first report comes at once; a later one shows that the
                # connection has lasted.
                self._state.pause_seconds = _MIN_PAUSE_SECONDS
            self._is_first = False
            if fields.get(b"event") == b"next":
                yield _data_of(json.loads(fields[b"data"]), 200)


def _timeout_of(default: float | None, override: float | Unset | None) -> httpx.Timeout:
    seconds = default if isinstance(override, Unset) else override
    return httpx.Timeout(seconds, read=_SILENCE_SECONDS)


def _follow(
    client: _Client,
    request: dict[str, Any],
    seconds: float | Unset | None,
) -> Iterator[Any]:
    state = _StreamState()
    while True:
        events = _EventParser(state)
        try:
            with client._http.stream(
                "POST",
                client._url,
                json=request,
                headers={**client._headers, **state.headers()},
                timeout=_timeout_of(client._timeout, seconds),
            ) as response:
                if response.status_code != 200:
                    response.read()
                if state.accept(response):
                    for received in response.iter_bytes():
                        yield from events.parse(received)
                        if state.is_ended:
                            return
        except httpx.TransportError:
            if not state.is_started:
                raise
        time.sleep(state.next_pause())


async def _follow_async(
    client: _AsyncClient,
    request: dict[str, Any],
    seconds: float | Unset | None,
) -> AsyncIterator[Any]:
    state = _StreamState()
    while True:
        events = _EventParser(state)
        try:
            async with client._http.stream(
                "POST",
                client._url,
                json=request,
                headers={**client._headers, **state.headers()},
                timeout=_timeout_of(client._timeout, seconds),
            ) as response:
                if response.status_code != 200:
                    await response.aread()
                if state.accept(response):
                    async for received in response.aiter_bytes():
                        for answer in events.parse(received):
                            yield answer
                        if state.is_ended:
                            return
        except httpx.TransportError:
            if not state.is_started:
                raise
        await asyncio.sleep(state.next_pause())
