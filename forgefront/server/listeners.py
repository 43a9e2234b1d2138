"""Listening sockets, and the number of files that a process may open."""

import resource
import socket

from forgefront.settings.config_error import ConfigError

LISTEN_BACKLOG = 2048
MAX_OPEN_FILES = 65_536


def create_listener(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ConfigError with the reason if it cannot be bound."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return socket.create_server(found[0][4][:2], family=found[0][0], backlog=LISTEN_BACKLOG)
    except OSError as error:
        raise ConfigError([f"cannot listen on {host} port {port}: {error.strerror or error}"]) from error


def raise_file_limit() -> None:
    """Raises the soft limit of open files, which is often 1,024, to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
