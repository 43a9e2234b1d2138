"""Code that every client contains, copied as it is; 88 columns, as formatters do."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

import httpx

# ---
T = TypeVar("T")


class Unset(enum.Enum):
    """The type of UNSET."""

    UNSET = "UNSET"


UNSET: Final = Unset.UNSET
"""Marks a variable that is not sent, which differs from null."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One of the errors of a response."""

    message: str
    code: str | None
    path: tuple[str | int, ...]
    request_id: str | None


class ForgefrontError(Exception):
    """A call that was refused or failed.

    Connection errors and timeouts are raised as httpx.TransportError.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        problems: tuple[Problem, ...] = (),
        data: Any = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.problems = problems
        self.data = data
        """The partial data of the response, as JSON."""

    @property
    def codes(self) -> tuple[str, ...]:
        """NOT_FOUND, FORBIDDEN, LIMIT_EXCEEDED …"""
        return tuple(problem.code for problem in self.problems if problem.code)

    @property
    def request_id(self) -> str | None:
        """The id of this call in the log of the service."""
        return next((each.request_id for each in self.problems), None)


class _Input:
    __slots__ = ()

    def sent(self) -> dict[str, object]:
        raise NotImplementedError


def _serialize(values: Mapping[str, object]) -> dict[str, object]:
    return {key: _to_json(each) for key, each in values.items() if each is not UNSET}


def _to_json(value: object) -> object:
    if isinstance(value, _Input):
        return value.sent()
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            raise ValueError("a datetime needs its time zone")
        return value.isoformat()
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: _to_json(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_to_json(each) for each in value]
    return value


def _datetime(value: Any) -> dt.datetime:
    return dt.datetime.fromisoformat(value)


def _date(value: Any) -> dt.date:
    return dt.date.fromisoformat(value)


def _maybe(read: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else read(value)


def _nullable(read: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda value: _maybe(read, value)


def _all(read: Callable[[Any], T], values: Any) -> tuple[T, ...]:
    return tuple(read(value) for value in values)


def _each(read: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    return lambda values: _all(read, values)


def _decode(read: Callable[[Any], T], data: Any) -> T:
    try:
        return read(data)
    except (KeyError, TypeError, ValueError) as error:
        raise ForgefrontError(
            f"the response does not match this client, generate it again: {error!r}",
            data=data,
        ) from error


def _data_of(body: Any, status: int) -> Any:
    """The data of a response; raises ForgefrontError if it has errors."""
    if not isinstance(body, dict) or not ("data" in body or "errors" in body):
        raise ForgefrontError(f"not a GraphQL response, status {status}", status=status)
    errors = body.get("errors")
    if not errors:
        return body["data"]
    problems = []
    for each in errors:
        extensions = each.get("extensions") or {}
        path = tuple(each.get("path") or ())
        code, request_id = extensions.get("code"), extensions.get("requestId")
        problems.append(Problem(each["message"], code, path, request_id))
    message = "; ".join(dict.fromkeys(each.message for each in problems))
    raise ForgefrontError(
        message,
        status=status,
        problems=tuple(problems),
        data=body.get("data"),
    )


def _decoded(response: httpx.Response) -> Any:
    try:
        body = response.json()
    except ValueError:
        body = None
    return _data_of(body, response.status_code)


def _request(name: str, query: str, variables: Mapping[str, object]) -> dict[str, Any]:
    return {"operationName": name, "query": query, "variables": _serialize(variables)}


def _headers(token: str | None) -> dict[str, str]:
    return {"Accept": "application/json", **({"PRIVATE-TOKEN": token} if token else {})}


class _Client:
    """`url` is the address of the service, `token` a private token.

    `timeout` is in seconds, for each of connecting, sending and waiting; None waits
    indefinitely. An `http` client that is passed in is not closed.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float | None = 30.0,
        http: httpx.Client | None = None,
    ) -> None:
        self._url = url.rstrip("/") + "/graphql"
        self._headers = _headers(token)
        self._timeout = timeout
        self._http = http or httpx.Client()
        self._owns_http = http is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._owns_http:
            self._http.close()

    def _run(self, request: dict[str, Any], seconds: float | Unset | None) -> Any:
        response = self._http.post(
            self._url,
            json=request,
            headers=self._headers,
            timeout=self._timeout if isinstance(seconds, Unset) else seconds,
        )
        return _decoded(response)


class _AsyncClient:
    """As `Client`, for use with `async with`."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float | None = 30.0,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._url = url.rstrip("/") + "/graphql"
        self._headers = _headers(token)
        self._timeout = timeout
        self._http = http or httpx.AsyncClient()
        self._owns_http = http is None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._owns_http:
            await self._http.aclose()

    async def _run(self, request: dict[str, Any], seconds: float | Unset | None) -> Any:
        response = await self._http.post(
            self._url,
            json=request,
            headers=self._headers,
            timeout=self._timeout if isinstance(seconds, Unset) else seconds,
        )
        return _decoded(response)
