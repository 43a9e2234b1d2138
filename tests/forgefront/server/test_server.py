"""A real server on a loopback port: slow clients, invalid headers, and running requests at a stop."""

import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from forgefront.config import Config, ConfigError
from forgefront.server import http_connection, http_server
from forgefront.server.listeners import create_listener
from tests.forgefront.support.app_server import AppServer, run_app_server

SECRET = "hunter2-AbCdEf_012345"


@pytest.fixture(scope="module")
def short_timeout_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppServer]:
    """A server with short times, for every test that leaves it running."""
    folder = tmp_path_factory.mktemp("impatient")
    times = {"FORGEFRONT_HEADER_TIMEOUT": "1", "FORGEFRONT_BODY_TIMEOUT": "1", "FORGEFRONT_KEEP_ALIVE_TIMEOUT": "1"}
    with run_app_server(folder, **times) as found:
        yield found


PATIENCE_SECONDS = 60.0
"""For what the server does when a time is over. Only a test that fails waits so long."""


def wait_for_lines(server: AppServer, request_id: str, count: int = 1) -> list[dict[str, Any]]:
    """The lines of the log about a request, once there are `count` of them."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found := [line for line in server.lines() if line.get("request_id") == request_id]) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def read_all(connection: socket.socket) -> bytes:
    """What comes until the server closes."""
    received = b""
    while data := connection.recv(65536):
        received += data
    return received


def read_response(connection: socket.socket) -> bytes:
    """The answer that comes next, whose body is a JSON object without others inside."""
    received = b""
    while not received.endswith(b"}"):
        data = connection.recv(65536)
        assert data, received
        received += data
    return received


class TestResponses:
    def test_request_id_is_returned(self, short_timeout_server: AppServer) -> None:
        response = httpx.get(f"http://127.0.0.1:{short_timeout_server.port}/", headers={"X-Request-Id": "mine-1"})
        assert response.headers["X-Request-Id"] == "mine-1"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert "server" not in response.headers

    def test_the_port_found_is_in_the_external_url(self, short_timeout_server: AppServer) -> None:
        answer = httpx.get(f"http://127.0.0.1:{short_timeout_server.port}/", headers={"Host": "evil.example"}).json()
        assert answer["url"] == f"http://127.0.0.1:{short_timeout_server.port}"

    def test_forwarded_for_is_not_believed(self, short_timeout_server: AppServer) -> None:
        answer = httpx.get(f"http://127.0.0.1:{short_timeout_server.port}/", headers={"X-Forwarded-For": "10.9.8.7"}).json()
        assert answer["client"] == "127.0.0.1"

    def test_headers_are_not_doubled(self, short_timeout_server: AppServer) -> None:
        response = httpx.get(f"http://127.0.0.1:{short_timeout_server.port}/doubled")
        assert response.headers.get_list("X-Content-Type-Options") == ["nosniff"]
        assert len(response.headers.get_list("X-Request-Id")) == 1

    def test_an_address_need_not_be_percent_encoded(self, short_timeout_server: AppServer) -> None:
        body = "größe\n".encode()
        with short_timeout_server.connect() as connection:
            connection.sendall(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
            connection.sendall(body)
            assert read_response(connection).endswith(b'{"length":%d}' % len(body))
            connection.sendall("GET /größe?x=ü HTTP/1.1\r\nHost: x\r\nX-Request-Id: typed\r\nConnection: close\r\n\r\n".encode())
            assert read_all(connection).startswith(b"HTTP/1.1 200 OK\r\n")
        assert [line["path"] for line in wait_for_lines(short_timeout_server, "typed")] == ["/gr%C3%B6%C3%9Fe"]

    def test_no_credential_in_the_log(self, short_timeout_server: AppServer) -> None:
        base = f"http://127.0.0.1:{short_timeout_server.port}"
        for path in ("/body", "/fail", "/nowhere"):
            httpx.post(
                f"{base}{path}?private_token={SECRET}&a=1",
                headers={"PRIVATE-TOKEN": SECRET, "Authorization": f"Bearer {SECRET}", "X-Request-Id": "secrets"},
                data={"private_token": SECRET, "password": SECRET},
            )
        mine = wait_for_lines(short_timeout_server, "secrets", 4)
        assert SECRET not in short_timeout_server.log.read_text()
        assert [(line["path"], line["status"]) for line in mine if line["event"] == "request"] == [
            ("/body", 200),
            ("/fail", 500),
            ("/nowhere", 200),
        ]
        assert any("ValueError" in line.get("exception", "") for line in mine)


HALF_REQUESTS = (
    b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    b"G",
    b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1234",
)


class TestSlowClients:
    def test_half_a_request_is_answered_with_408_and_closed(self, short_timeout_server: AppServer) -> None:
        def send(sent: bytes) -> None:
            started = time.monotonic()
            with short_timeout_server.connect() as connection:
                connection.sendall(sent)
                answer = read_all(connection)
            assert time.monotonic() - started > 0.9
            assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
            assert answer.endswith(b'\r\n\r\n{"message":"408 Request Timeout"}')

        with ThreadPoolExecutor() as threads:
            list(threads.map(send, HALF_REQUESTS))

    def test_a_header_cannot_be_dripped(self, short_timeout_server: AppServer) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        with short_timeout_server.connect() as connection, pytest.raises((BrokenPipeError, ConnectionResetError)):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
            while time.monotonic() < deadline:
                connection.sendall(b"a: b\r\n")
                time.sleep(0.1)

    def test_a_silent_connection_is_closed(self, short_timeout_server: AppServer) -> None:
        with short_timeout_server.connect() as silent, short_timeout_server.connect() as connection:
            connection.sendall(b"\r\n")
            assert read_all(silent) == read_all(connection) == b""

    def test_an_idle_connection_is_closed_after_the_keep_alive_timeout(self, short_timeout_server: AppServer) -> None:
        with short_timeout_server.connect() as connection:
            for _ in range(2):
                connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert read_response(connection).startswith(b"HTTP/1.1 200")
                time.sleep(0.3)
            # uvicorn's own timer ends with the first byte that comes.
            connection.sendall(b"\r\n")
            assert read_all(connection) == b""

    def test_an_unread_body_closes_the_connection(self, short_timeout_server: AppServer) -> None:
        with short_timeout_server.connect() as connection:
            connection.sendall(b"POST /ignore HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
            assert read_all(connection).startswith(b"HTTP/1.1 413")

    def test_the_answer_to_an_unread_body_reaches_a_client_that_still_sends(self, short_timeout_server: AppServer) -> None:
        with short_timeout_server.connect() as connection:
            size = 50_000_000
            connection.sendall(b"POST /ignore HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size)
            for _ in range(5):
                connection.sendall(bytes(size // 5))
                time.sleep(0.3)
            assert read_all(connection).startswith(b"HTTP/1.1 413")

    def test_slow_but_moving_body_is_served(self, short_timeout_server: AppServer) -> None:
        with short_timeout_server.connect() as connection:
            connection.sendall(b"POST /body HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 8\r\n\r\n")
            for _ in range(8):
                time.sleep(0.3)
                connection.sendall(b"x")
            assert read_all(connection).endswith(b'{"length":8}')

    def test_slow_answer_is_not_a_slow_client(self, short_timeout_server: AppServer) -> None:
        assert httpx.get(f"http://127.0.0.1:{short_timeout_server.port}/sleep?seconds=2.5").text == "slept"

    def test_a_client_that_does_not_read_is_disconnected(self, short_timeout_server: AppServer) -> None:
        with short_timeout_server.connect() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\nX-Request-Id: unread\r\n\r\n")
            wait_for_lines(short_timeout_server, "unread")


class TestBadRequests:
    @pytest.mark.parametrize(
        ("sent", "status"),
        [
            (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
            (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 70_000 + b"\r\n\r\n", 431),
            (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 2_000_000, 431),
            (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431),
            (b"nonsense\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
            (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: nonsense\r\n\r\n0\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
            (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ],
    )
    def test_refused_in_json_and_closed(self, sent: bytes, status: int, short_timeout_server: AppServer) -> None:
        with short_timeout_server.connect() as connection:
            threading.Thread(target=_send, args=(connection, sent)).start()
            answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert re.search(rb'\r\n\r\n\{"message":"%d [A-Za-z -]+"\}$' % status, answer)
        assert answer.count(b"HTTP/1.1") == 1

    @pytest.mark.parametrize("first", [20, 40_000, 65_536, 69_000])
    def test_a_large_header_is_rejected_in_whatever_pieces_it_comes(self, short_timeout_server: AppServer, first: int) -> None:
        sent = b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 70_000 + b"\r\n\r\n"
        with short_timeout_server.connect() as connection:
            connection.sendall(sent[:first])
            time.sleep(0.05)
            threading.Thread(target=_send, args=(connection, sent[first:])).start()
            assert read_all(connection).startswith(b"HTTP/1.1 431 ")

    def test_large_bodies_with_a_header_behind_them_are_no_large_header(self, short_timeout_server: AppServer) -> None:
        post = b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 150000\r\n\r\n" + b"x" * 150_000
        with short_timeout_server.connect() as connection:
            connection.sendall(post + post + b"GET / HTTP/1.1\r\nHost: x\r\nConnection: ")
            time.sleep(0.2)
            connection.sendall(b"close\r\n\r\n")
            answer = read_all(connection)
        assert answer.count(b"HTTP/1.1 200") == 3

    def test_garbage_after_a_request_does_not_affect_its_response(self, short_timeout_server: AppServer) -> None:
        with short_timeout_server.connect() as connection:
            connection.sendall(b"GET /sleep?seconds=0.3 HTTP/1.1\r\nHost: x\r\n\r\nnonsense\r\n\r\n")
            answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"slept")

    @pytest.mark.parametrize(
        "rest",
        [
            b"2\r\nab\r\n0\r\n" + b"a: b\r\n" * 400_000,
            b"2\r\nab\r\n0\r\na: " + b"b" * 2_000_000,
            b"2;" + b"a" * 2_000_000,
            b"2\r\nab\r\n0;" + b"a" * 2_000_000,
        ],
        ids=["fields", "one field", "extension", "last extension"],
    )
    def test_a_chunked_body_has_bounded_trailers_and_extensions(self, rest: bytes, short_timeout_server: AppServer) -> None:
        with short_timeout_server.connect() as connection:
            connection.sendall(b"POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            threading.Thread(target=_send, args=(connection, rest)).start()
            answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert answer.count(b"HTTP/1.1") == 1

    def test_chunks_of_one_byte_are_served(self, short_timeout_server: AppServer) -> None:
        with short_timeout_server.connect() as connection:
            connection.sendall(b"POST /body HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
            connection.sendall(b"1;a=b\r\nx\r\n" * 50_000 + b"0\r\nX-Sum: 1\r\n\r\n")
            assert read_all(connection).endswith(b'{"length":50000}')

    def test_trailers_do_not_become_headers(self, short_timeout_server: AppServer) -> None:
        with short_timeout_server.connect() as connection:
            connection.sendall(b"POST /fields HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
            connection.sendall(b"2\r\nab\r\n0\r\nPRIVATE-TOKEN: x\r\n\r\n")
            assert read_all(connection).endswith(b'{"names":["host","connection","transfer-encoding"]}')


class TestPipelining:
    def test_some_requests_are_answered_in_their_order(self, short_timeout_server: AppServer) -> None:
        with short_timeout_server.connect() as connection:
            lengths = range(http_connection.MAX_PIPELINED_REQUESTS)
            connection.sendall(
                b"".join(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (length, b"x" * length) for length in lengths)
                + b"GET /sleep?seconds=0.1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            )
            answer = read_all(connection)
        assert [int(length) for length in re.findall(rb'\{"length":(\d+)\}', answer)] == list(lengths)
        assert answer.endswith(b"slept")

    def test_requests_beyond_the_limit_are_left_to_another_connection(self, short_timeout_server: AppServer) -> None:
        with short_timeout_server.connect() as connection:
            threading.Thread(target=_send, args=(connection, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 100_000)).start()
            answer = read_all(connection)
        assert answer.count(b"HTTP/1.1 200") == answer.count(b"HTTP/1.1") == http_connection.MAX_PIPELINED_REQUESTS + 1
        assert answer.lower().count(b"connection: close") == 1
        assert answer.endswith(b"}")

    def test_a_running_request_notices_that_its_client_disconnects(self, short_timeout_server: AppServer) -> None:
        with short_timeout_server.connect() as connection:
            connection.sendall(b"GET /wait HTTP/1.1\r\nHost: x\r\nX-Request-Id: left\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n")
            time.sleep(0.2)
        assert [line["status"] for line in wait_for_lines(short_timeout_server, "left")] == [499]

    def test_a_websocket_cannot_begin_while_a_response_is_sent(self, short_timeout_server: AppServer) -> None:
        upgrade = (
            b"GET /graphql HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        with short_timeout_server.connect() as connection:
            connection.sendall(b"GET /sleep?seconds=0.3 HTTP/1.1\r\nHost: x\r\n\r\n" + upgrade)
            answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.count(b"HTTP/1.1") == 1
        assert answer.endswith(b"slept")


def _send(connection: socket.socket, data: bytes) -> None:
    try:
        connection.sendall(data)
    except OSError:
        return


def open_websocket(server: AppServer, *, receive_buffer: int = 65536, headers: bytes = b"") -> socket.socket:
    """A connection whose handshake is sent, and, without more headers, answered."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(10)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(
        b"GET /socket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Request-Id: socket-%d\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n%b\r\n" % (receive_buffer, headers)
    )
    received = b""
    while not headers and not received.endswith(b"\r\n\r\n"):
        received += connection.recv(1)
    return connection


def frame(opcode: int, payload: bytes, *, is_last: bool = True) -> bytes:
    """A frame of a client with less than 64 KB, masked with zeros."""
    size = bytes((0x80 | len(payload),)) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2, "big")
    return bytes(((0x80 if is_last else 0) | opcode,)) + size + bytes(4) + payload


TEXT, PING, CONTINUATION = 1, 9, 0


class TestWebSockets:
    def test_messages_of_any_size_are_received(self, short_timeout_server: AppServer) -> None:
        with open_websocket(short_timeout_server) as connection:
            parts = [frame(CONTINUATION, b"x" * 60_000, is_last=False) for _ in range(10)]
            connection.sendall(frame(TEXT, b"", is_last=False) + b"".join(parts) + frame(CONTINUATION, b"x"))
            received = b""
            while not received.endswith(b"end"):
                received += connection.recv(100)
            assert received == b"\x81\x06600001\x81\x03end"
            connection.sendall(frame(TEXT, b"abc") * 1000)
            received = b""
            while received.count(b"end") < 1000:
                received += connection.recv(65536)
            assert received.count(b"\x81\x013") == 1000

    def test_a_client_that_does_not_read_is_disconnected(self, short_timeout_server: AppServer) -> None:
        with open_websocket(short_timeout_server, receive_buffer=4096) as connection:
            connection.sendall(frame(TEXT, b"large"))
            wait_for_lines(short_timeout_server, "socket-4096")

    def test_pings_are_not_read_while_their_answers_are_not(self, short_timeout_server: AppServer) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        with (
            open_websocket(short_timeout_server, receive_buffer=4100) as connection,
            pytest.raises((BrokenPipeError, ConnectionResetError)),
        ):
            while time.monotonic() < deadline:
                connection.sendall(frame(PING, b"x" * 125) * 1000)

    def test_a_message_has_a_bounded_number_of_frames(self, short_timeout_server: AppServer) -> None:
        with open_websocket(short_timeout_server) as connection:
            sent = frame(TEXT, b"x", is_last=False) + frame(CONTINUATION, b"", is_last=False) * 50_000
            threading.Thread(target=_send, args=(connection, sent)).start()
            assert connection.recv(4) == b"\x88\x11" + (1009).to_bytes(2, "big")

    def test_a_handshake_that_cannot_be_read_is_answered(self, short_timeout_server: AppServer) -> None:
        with open_websocket(short_timeout_server, headers=b"X: " + b"a" * 9000 + b"\r\n") as connection:
            assert read_all(connection).startswith(b"HTTP/1.1 431 ")


class TestShutdown:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_running_request_ends_and_new_ones_are_rejected(self, number: int, tmp_path: Path) -> None:
        with run_app_server(tmp_path) as found:
            answers: list[httpx.Response] = []
            address = f"http://127.0.0.1:{found.port}/sleep?seconds=1.5"
            thread = threading.Thread(target=lambda: answers.append(httpx.get(address)))
            thread.start()
            time.sleep(0.5)
            found.process.send_signal(number)
            time.sleep(0.3)
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"http://127.0.0.1:{found.port}/")
            thread.join()
            assert found.process.wait(20) == 0
            assert answers[0].text == "slept"
            assert answers[0].headers["Connection"] == "close"

    def test_busy_keep_alive_clients_are_not_cut(self, tmp_path: Path) -> None:
        with run_app_server(tmp_path) as found:
            cut: list[Exception] = []
            answered = [0]

            def work() -> None:
                with httpx.Client(base_url=f"http://127.0.0.1:{found.port}") as http:
                    while True:
                        try:
                            assert http.get("/").status_code == 200
                            answered[0] += 1
                        except httpx.ConnectError:
                            return
                        except Exception as error:
                            cut.append(error)
                            return

            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads:
                thread.start()
            deadline = time.monotonic() + PATIENCE_SECONDS
            while answered[0] <= 50 and not cut:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert found.stop() == 0
            for thread in threads:
                thread.join()
            assert cut == []

    def test_request_that_takes_too_long_is_cut(self, tmp_path: Path) -> None:
        with run_app_server(tmp_path, FORGEFRONT_STOP_TIMEOUT="1") as found, found.connect() as connection:
            connection.sendall(b"GET /sleep?seconds=60 HTTP/1.1\r\nHost: x\r\n\r\n")
            time.sleep(0.3)
            started = time.monotonic()
            assert found.stop() == 0
            # Ten seconds, unless it is set.
            assert time.monotonic() - started < 8

    def test_a_hanging_thread_does_not_block_exit(self, tmp_path: Path) -> None:
        with run_app_server(tmp_path, FORGEFRONT_STOP_TIMEOUT="1") as found, found.connect() as connection:
            connection.sendall(b"GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
            time.sleep(0.3)
            assert found.stop() == 1
            assert "shutdown timed out; process killed" in found.log.read_text()

    def test_idle_connections_delay_neither_others_nor_it(self, tmp_path: Path) -> None:
        with run_app_server(tmp_path) as found, found.connect() as connection, ExitStack() as half_open:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read_response(connection)
            for _ in range(200):
                half_open.enter_context(found.connect()).sendall(b"POST / HTTP/1.1\r\nHost: x\r\n")
            # Each half of a request has twenty seconds to become a whole one.
            with httpx.Client(base_url=f"http://127.0.0.1:{found.port}", timeout=15) as http:
                assert all(http.get("/").status_code == 200 for _ in range(50))
            started = time.monotonic()
            assert found.stop() == 0
            # What is running has ten.
            assert time.monotonic() - started < 8


class TestStartup:
    def test_app_that_cannot_start(self, tmp_path: Path) -> None:
        with run_app_server(tmp_path, SERVING_FAILS="1") as found:
            assert found.process.wait(10) == 1
            assert [line["event"] for line in found.lines()] == ["as asked", "Application startup failed. Exiting."]
        with run_app_server(tmp_path, SERVING_FAILS="build") as found:
            assert found.process.wait(10) == 1
            assert "ConfigError: as asked" in found.log.read_text()

    def test_port_in_use(self) -> None:
        with create_listener("127.0.0.1", 0) as taken, pytest.raises(ConfigError, match="Address already in use"):
            http_server.run(Config.load(port=taken.getsockname()[1]), build=lambda config: pytest.fail("built"))

    def test_host_that_is_not_here(self) -> None:
        with pytest.raises(ConfigError, match=r"cannot listen on 203\.0\.113\.1 port 0"):
            create_listener("203.0.113.1", 0)


START_SECONDS = 120.0
"""Until a worker has started. Only a test that fails waits so long."""
# The app of these tests opens no database.
WORKERS = {"FORGEFRONT_WORKERS": "2", "FORGEFRONT_DATABASE_URL": "postgresql://127.0.0.1/none"}


class TestWorkers:
    def processes(self, found: AppServer, count: int) -> set[int]:
        """The servers that answer, once their number is reached."""
        seen: set[int] = set()
        deadline = time.monotonic() + START_SECONDS
        while len(seen) < count and time.monotonic() < deadline:
            seen.add(httpx.get(f"http://127.0.0.1:{found.port}/").json()["process"])
            time.sleep(0.02)
        return seen

    def test_both_answer_are_replaced_and_do_not_outlive_their_parent(self, tmp_path: Path) -> None:
        """One server for all of it, since an interpreter takes seconds to start."""
        with run_app_server(tmp_path, **WORKERS) as pair:
            first = self.processes(pair, 2)
            assert len(first) == 2
            assert pair.process.pid not in first
            for _ in range(10):
                httpx.get(f"http://127.0.0.1:{pair.port}/body")
            text = httpx.get(f"http://127.0.0.1:{pair.port}/metrics").text
            assert 'forgefront_http_requests_total{method="GET",route="/body",status="200"} 10.0' in text

            with pytest.raises(httpx.RemoteProtocolError):
                httpx.get(f"http://127.0.0.1:{pair.port}/exit")
            time.sleep(0.2)
            assert httpx.get(f"http://127.0.0.1:{pair.port}/").status_code == 200
            second = self.processes(pair, 2)
            assert len(second - first) == 1

            pair.process.kill()
            deadline = time.monotonic() + 30
            while any(is_running(process) for process in second):
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def test_they_stop(self, tmp_path: Path) -> None:
        with run_app_server(tmp_path, SERVING_FORKS="1", **WORKERS) as pair:
            processes = self.processes(pair, 2)
            assert len(processes) == 2
            assert pair.stop() == 0
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"http://127.0.0.1:{pair.port}/")
            assert not any(is_running(process) for process in processes)

    def test_failing_start_ends_all(self, tmp_path: Path) -> None:
        with run_app_server(tmp_path, SERVING_FORKS="1", SERVING_FAILS="1", **WORKERS) as found:
            assert found.process.wait(15) == 1


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
