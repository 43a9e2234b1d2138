"""Lists the refs of a repository over HTTP with one request, without a git process (gitprotocol-http, Discovering References)."""

import re
from dataclasses import dataclass

from forgefront.importing.source_client import SourceClient
from storage.git.protocol.packets import decode_packets
from storage.git.subprocesses.git_command import basic_authorization

MAX_LISTING_BYTES = 32 * 2**20
CONTENT_TYPE = "application/x-git-upload-pack-advertisement"
NO_REFS = b"capabilities^{}"
_REF = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) (\S.*)", re.ASCII)


@dataclass(frozen=True)
class RefLister:
    """Lists refs through the client of the instance, within its bounds of requests."""

    client: SourceClient

    async def list_refs(self, url: str, credentials: str | None) -> str | None:
        """What `git ls-remote --symref URL` prints; `credentials` are "user:password".

        None unless the server answers the one attempt with an advertisement of version 0 of the protocol: git knows the others, and says
        what is wrong. Raises SourceMissing if the server knows no repository at this URL that these credentials may read.
        """
        headers = {"Accept": "*/*"}
        if credentials is not None:
            name, _, value = basic_authorization(credentials).partition(": ")
            headers[name] = value
        found = await self.client.get_once(f"{url}/info/refs?service=git-upload-pack", headers, max_bytes=MAX_LISTING_BYTES)
        if found is None or found[0].get("content-type") != CONTENT_TYPE:
            return None
        return parse_advertisement(found[1])


def parse_advertisement(body: bytes) -> str | None:
    """The refs as `git ls-remote --symref` prints them; None if the advertisement is not complete, or of another version."""
    try:
        service, *packets = decode_packets(body)
    except ValueError:
        # MalformedPacket, or there is no packet.
        return None
    if service != b"# service=git-upload-pack\n" or len(packets) < 2 or packets[0] is not None or packets[-1] is not None:
        return None
    lines = [packet.removesuffix(b"\n") for packet in packets[1:-1] if packet is not None]
    if len(lines) != len(packets) - 2:
        return None
    if not lines:
        # What git advertises of a repository without refs.
        return ""
    lines[0], _, capabilities = lines[0].partition(b"\0")
    matches = [_REF.fullmatch(line) for line in lines]
    refs = [(match[1], match[2]) for match in matches if match is not None]
    if len(refs) != len(lines):
        return None
    if refs[0][1] == NO_REFS:
        return "" if len(refs) == 1 else None
    targets = dict(
        each.removeprefix(b"symref=").split(b":", 1)[:2] for each in capabilities.split() if each.startswith(b"symref=") and b":" in each
    )
    printed = list[bytes]()
    for oid, name in refs:
        if name in targets:
            printed.append(b"ref: %s\t%s\n" % (targets[name], name))
        printed.append(b"%s\t%s\n" % (oid, name))
    return b"".join(printed).decode("utf-8", "replace")
