"""The peer of git over HTTP: plain `git http-backend` behind the smallest CGI server that streams (RFC 3875), without any checks.

`python -m benchmarks.peers.git_http_backend ROOT PORT` serves the bare repositories in ROOT, each caller in a thread.
"""

import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import IO

BLOCK_BYTES = 64 * 1024


class CgiHandler(BaseHTTPRequestHandler):
    """One request, one process."""

    protocol_version = "HTTP/1.1"
    root = ""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": self.root,
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REMOTE_USER": "bench",
            "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        if "Content-Length" in self.headers:
            environment["CONTENT_LENGTH"] = self.headers["Content-Length"]
        with subprocess.Popen(["git", "http-backend"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None and process.stdout is not None
            feeding = Thread(target=self._feed, args=(process.stdin,))
            feeding.start()
            self._answer(process.stdout)
            feeding.join()

    def do_POST(self) -> None:
        self.do_GET()

    def _feed(self, stdin: IO[bytes]) -> None:
        with stdin:
            if self.headers.get("Transfer-Encoding", "") == "chunked":
                while size := int(self.rfile.readline().partition(b";")[0], 16):
                    stdin.write(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return
            left = int(self.headers.get("Content-Length", 0))
            while left and (block := self.rfile.read(min(left, BLOCK_BYTES))):
                left -= len(block)
                stdin.write(block)

    def _answer(self, stdout: IO[bytes]) -> None:
        status, headers = 200, []
        while line := stdout.readline().strip():
            name, _, value = line.decode("latin-1").partition(": ")
            if name.lower() == "status":
                status = int(value[:3])
            else:
                headers.append((name, value))
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while block := stdout.read1(BLOCK_BYTES):  # type: ignore[attr-defined]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(block), block))
        self.wfile.write(b"0\r\n\r\n")


def main() -> None:
    root, port = sys.argv[1:]
    CgiHandler.root = root
    with ThreadingHTTPServer(("127.0.0.1", int(port)), CgiHandler) as server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
