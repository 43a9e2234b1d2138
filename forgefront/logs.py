"""Structured log lines with the request id and without secrets.

structlog's loggers and those of the standard library (uvicorn, SQLAlchemy, alembic, asyncio) share one processor chain, so that every line
has the same format and the same redaction. Lines go to standard error; standard output belongs to the commands.
"""

import asyncio
import io
import logging
import re
import sys
from collections.abc import Callable, MutableMapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, TextIO
from urllib.parse import unquote

import orjson
import structlog
from structlog.typing import Processor

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the request that this task serves. The middleware sets it, and every line of the task includes it."""

REDACTED = "[redacted]"

SECRET_NAMES = frozenset({"token", "password", "passwd", "secret", "authorization", "cookie", "credential", "parameters", "dsn"})
SECRET_SUFFIXES = ("_token", "_password", "_secret", "_key", "_authorization")

JSON_OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE

# One quick test excludes most strings that nothing below can match.
_SUSPECT_PATTERN = re.compile(r"token|passw|secret|authori[sz]ation|bearer|cookie|\[parameters|\nDETAIL:|://[^/\s@]*@", re.IGNORECASE)
_SUSPECT_WORDS = ("token", "passw", "secret", "authori", "bearer", "cookie", "[parameters", "\ndetail:", "://")
_NAMED_SECRET_PATTERN = re.compile(
    r"""
    # The end of the name of a parameter, a header, a JSON or Python key.
    ( (?: token | password | passwd | secret | secret[_-]key | authorization | cookie ) ["']? )
    # name=value, name: value, (b'name', b'value'), name%3Dvalue of a query that was encoded as a whole
    ( \s* (?: =>? | : | %3[ad] ) \s* | (?<=["']) , \s* )
    (?: b? "[^"]*" | b? '[^']*' | (?: (?: bearer | basic | token ) \s+ )? [^\s"'&,;)}\]]+ )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_TOKEN_PATTERN = re.compile(r"(?<![A-Za-z0-9_-])(?![a-z_-]+(?![A-Za-z0-9_-]))[A-Za-z0-9_-]{20,}")
"""Has the form of a token: those of Forgefront and of other forges have at least 20 letters, digits, underscores and dashes."""
_ID_PARAMETER_PATTERN = re.compile(r":(?:id|uid|\w+_id)")
_BEARER_PATTERN = re.compile(r"\b(bearer)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
# To the last @: a password that is not encoded may contain one.
_USER_INFO_PATTERN = re.compile(r"(://)[^/\s]*@")
_SQL_PARAMETERS_PATTERN = re.compile(r"\[parameters: [^\n]*")
# PostgreSQL reports the values that violate a constraint; they may contain line breaks.
_SQL_DETAIL_PATTERN = re.compile(r"(\nDETAIL:\s).*?(?=\n\[SQL|\nHINT:|\n\n|\Z)", re.DOTALL)


def configure(log_format: Literal["json", "text"], level: str, stream: TextIO | None = None) -> None:
    """Configures every logger of the process. `level` is the minimum; `stream` is standard error by default."""
    stream = stream or _open_standard_error()
    min_level = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        _add_request_id,
    ]
    renderer: Processor = _render_json if log_format == "json" else _create_text_renderer(stream)
    structlog.configure(
        processors=[*shared, _add_logger_name, structlog.processors.format_exc_info, redact, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(min_level),
        logger_factory=_StreamLoggerFactory(stream, min_level),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                redact,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(min_level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi"):
        logging.getLogger(name).handlers = []
        logging.getLogger(name).propagate = True
    # The middleware writes the access lines: uvicorn's contain the query string, and with it private_token.
    logging.getLogger("uvicorn.access").handlers = []
    logging.getLogger("uvicorn.access").propagate = False
    # At debug, some of these log whole statements with their parameters, and every frame of a WebSocket; at info, others log a start in
    # twenty lines that the app logs in two.
    for name in ("aiosqlite", "alembic", "uvicorn.error", "sqlalchemy", "websockets", "asyncssh", "httpcore", "httpx", "hpack"):
        logging.getLogger(name).setLevel(max(min_level, logging.WARNING))
    logging.captureWarnings(True)


def _open_standard_error() -> TextIO:
    """Standard error with a buffer, which is flushed after each line but an access line (`_create_json_writer`).

    PYTHONUNBUFFERED, which many containers set, takes the buffer away; then each access line would wake the program that collects the log.
    """
    stream = sys.stderr
    has_no_buffer = stream is sys.__stderr__ and isinstance(getattr(stream, "buffer", None), io.RawIOBase)
    return open(stream.fileno(), "w", encoding=stream.encoding, errors=stream.errors, closefd=False) if has_no_buffer else stream


class _StreamLogger(structlog.WriteLogger):
    """A logger with the name that `structlog.get_logger` was called with."""

    def __init__(self, stream: TextIO, name: str | None) -> None:
        super().__init__(stream)
        self.name = name


class _StreamLoggerFactory:
    """Creates loggers with their stream and minimum level."""

    def __init__(self, stream: TextIO, min_level: int) -> None:
        self.stream = stream
        self.min_level = min_level

    def __call__(self, name: str | None = None) -> _StreamLogger:
        return _StreamLogger(self.stream, name)


WriteLine = Callable[[dict[str, Any]], None]


def create_unredacted_writer(name: str) -> WriteLine:
    """Writes lines of the same format, at the level `info`, without the processor chain, which costs ten times as much as the line.

    A line is a dictionary of JSON types with its `event`; the writer takes ownership of it. The caller must redact what clients wrote.
    """
    settings = structlog.get_config()
    chain, factory = settings["processors"], settings["logger_factory"]
    if chain[-1] is _render_json and isinstance(factory, _StreamLoggerFactory):
        return _create_json_writer(name, factory.stream) if factory.min_level <= logging.INFO else _discard
    fast_processors = [processor for processor in chain if processor not in (redact, _add_request_id, structlog.processors.format_exc_info)]
    logger = structlog.wrap_logger(factory(), processors=fast_processors).bind(logger=name)
    return lambda line: logger.info(**line)


def _create_json_writer(name: str, stream: TextIO) -> WriteLine:
    """Lines of one iteration of the event loop are written together, or before any other line that is written in it."""
    binary = getattr(stream, "buffer", None)
    flushing: asyncio.AbstractEventLoop | None = None

    def flush() -> None:
        nonlocal flushing
        flushing = None
        stream.flush()

    def write(line: dict[str, Any]) -> None:
        nonlocal flushing
        line["logger"] = name
        line["level"] = "info"
        line["time"] = datetime.now(UTC)
        data = orjson.dumps(line, option=JSON_OPTIONS)
        if binary is None:
            stream.write(data.decode())
        else:
            binary.write(data)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            flush()
            return
        if loop is not flushing:
            flushing = loop
            loop.call_soon(flush)

    return write


def _discard(line: dict[str, Any]) -> None:
    """For lines below the level."""


def redact(logger: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Redacts secrets in a line: values whose name is that of a secret, and such pairs inside any string.

    `{"event": "GET /x?private_token=abc&page=2", "password": "p"}` becomes
    `{"event": "GET /x?private_token=[redacted]&page=2", "password": "[redacted]"}`.
    """
    for name, value in line.items():
        if type(value) is int or type(value) is float or value is None:
            continue
        line[name] = REDACTED if _is_secret_name(name) else _redact_value(value)
    return line


def redact_text(text: str) -> str:
    """The string without values of tokens, passwords, credential headers, user information in URLs and parameters of SQL statements."""
    # Substring tests take a tenth of the time of the pattern. (Case-insensitive patterns also match some non-ASCII letters.)
    if text.isascii():
        lower = text.lower()
        for word in _SUSPECT_WORDS:
            if word in lower:
                break
        else:
            return text
    if not _SUSPECT_PATTERN.search(text):
        return text
    text = _SQL_PARAMETERS_PATTERN.sub(f"[parameters: {REDACTED}]", text)
    text = _SQL_DETAIL_PATTERN.sub(rf"\1{REDACTED}", text)
    text = _NAMED_SECRET_PATTERN.sub(rf"\1\2{REDACTED}", text)
    text = _BEARER_PATTERN.sub(rf"\1 {REDACTED}", text)
    return _USER_INFO_PATTERN.sub(rf"\1{REDACTED}@", text)


def redact_tokens(text: str) -> str:
    """The string without anything that has the form of a token. Words of small letters stay, IDs of commits do not."""
    return _TOKEN_PATTERN.sub(REDACTED, text)


def redact_ids(path: str, route: str) -> str:
    """The path without what has the form of a token in the place of an id: `/users/:user_id/keys` is a route with one.

    A project's `namespace%2Fname` stays, since no token has a slash.
    """
    segments = path.split("/")
    for index, (name, segment) in enumerate(zip(route.split("/"), segments, strict=False)):
        if _ID_PARAMETER_PATTERN.fullmatch(name) and "/" not in (value := unquote(segment)) and _TOKEN_PATTERN.search(value):
            segments[index] = REDACTED
    return "/".join(segments)


def _redact_value(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, bytes):
        return redact_text(value.decode("utf-8", "replace"))
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth == 8:
        return "…"
    if isinstance(value, dict):
        return {
            redact_text(str(name)): REDACTED if _is_secret_name(str(name)) else _redact_value(inner, depth + 1)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        # A header is a pair of its name and its value.
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str | bytes):
            name = value[0].decode("latin-1") if isinstance(value[0], bytes) else value[0]
            if _is_secret_name(name):
                return [name, REDACTED]
        return [_redact_value(inner, depth + 1) for inner in value]
    return redact_text(str(value))


def _is_secret_name(name: str) -> bool:
    """Whether the value of this name is a credential. Callers choose names, so long ones are not cached."""
    return _matches_secret_name(name) if len(name) <= MAX_CACHED_NAME_LENGTH else _matches_secret_name.__wrapped__(name)


MAX_CACHED_NAME_LENGTH = 100


@lru_cache(maxsize=1024)
def _matches_secret_name(name: str) -> bool:
    plain = name.lower().replace("-", "_")
    return plain in SECRET_NAMES or plain.endswith(SECRET_SUFFIXES)


def _add_request_id(logger: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if "request_id" not in line and (request_id := REQUEST_ID.get()) is not None:
        line["request_id"] = request_id
    return line


def _add_logger_name(logger: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if "logger" not in line and logger.name:
        line["logger"] = logger.name
    return line


def _render_json(logger: Any, method: str, line: MutableMapping[str, Any]) -> str:
    # A lone surrogate cannot be encoded in UTF-8, and no line may be lost to one.
    try:
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except orjson.JSONEncodeError:
        return orjson.dumps({str(name): ascii(value) for name, value in line.items()}).decode()


def _create_text_renderer(stream: TextIO) -> Processor:
    renderer = structlog.dev.ConsoleRenderer(
        colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback, timestamp_key="time", sort_keys=False
    )

    def render(logger: Any, method: str, line: MutableMapping[str, Any]) -> str:
        # A line break in a value would let a client forge lines.
        for name, value in line.items():
            if isinstance(value, str) and name not in ("exception", "stack") and not value.isprintable():
                line[name] = value.encode("unicode_escape").decode()
        return str(renderer(logger, method, line))

    return render
