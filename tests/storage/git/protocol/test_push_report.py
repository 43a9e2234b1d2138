"""The reason that is added to receive-pack's report of a push that exceeded a limit."""

from storage.git.protocol.push_report import PushReport

PROGRESS, DATA = b"\2", b"\1"
FATAL = b"fatal: Out of memory, malloc failed\n"
FAILURE = b"0024unpack index-pack abnormal exit\n0029ng refs/heads/hostile unpacker error\n0000"


def packet(band: bytes, data: bytes = b"") -> bytes:
    return f"{len(data) + 5:04x}".encode() + band + data


async def pass_on(*blocks: bytes) -> bytes:
    """What the client gets of these blocks, with git's messages as the reason."""
    passed: list[bytes] = []

    async def outgoing(block: bytes) -> None:
        passed.append(block)

    async def explain(messages: bytes) -> str | None:
        return f"because of {messages.decode().strip()}" if messages else None

    report = PushReport(outgoing, explain)
    for block in blocks:
        await report.write(block)
    await report.flush()
    return b"".join(passed)


REASON = packet(PROGRESS, b"because of " + FATAL)


class TestReason:
    async def test_comes_before_the_report_of_a_failure(self) -> None:
        assert await pass_on(packet(PROGRESS, FATAL), packet(DATA, FAILURE)) == packet(PROGRESS, FATAL) + REASON + packet(DATA, FAILURE)

    async def test_comes_after_packets_that_keep_the_connection_alive(self) -> None:
        answer = await pass_on(packet(DATA), packet(PROGRESS, FATAL), packet(DATA), packet(DATA, FAILURE))

        assert answer == packet(DATA) + packet(PROGRESS, FATAL) + packet(DATA) + REASON + packet(DATA, FAILURE)

    async def test_packets_may_be_cut_anywhere(self) -> None:
        whole = packet(PROGRESS, FATAL) + packet(DATA, FAILURE)

        assert await pass_on(*(whole[at : at + 1] for at in range(len(whole)))) == packet(PROGRESS, FATAL) + REASON + packet(DATA, FAILURE)

    async def test_a_push_that_was_unpacked_needs_none(self) -> None:
        blocks = packet(PROGRESS, b"warning\n"), packet(DATA, b"000eunpack ok\n0000")

        assert await pass_on(*blocks) == b"".join(blocks)

    async def test_responses_without_side_band_are_not_changed(self) -> None:
        assert await pass_on(b"unpack ok\n") == b"unpack ok\n"
