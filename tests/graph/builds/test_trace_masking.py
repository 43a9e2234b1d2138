"""Masking of secrets in traces, in every encoding and at every cut."""

import base64
import re
from urllib.parse import quote

import pytest

from graph.rules.builds.trace_masking import PendingTrace, SecretMasker
from tests.support.generated_examples import given, settings, st

TOKEN = "fb-17-a_b-C0123456789_-xYz"
PASSWORD = "pa ss/wörd+äöü=1"
FORMS = {
    "plain": TOKEN,
    "in an address": f"http://gitlab-ci-token:{TOKEN}@forge.example/a/b.git",
    "basic credentials": base64.b64encode(f"gitlab-ci-token:{TOKEN}".encode()).decode(),
    "basic credentials of another name": base64.b64encode(f"me:{TOKEN}".encode()).decode(),
    "base64 without a name": base64.b64encode(TOKEN.encode()).decode(),
    "base64 for addresses": base64.urlsafe_b64encode(f"x:{TOKEN}\xff\xfe".encode("latin-1")).decode(),
    "percent-encoded": quote(PASSWORD, safe=""),
    "percent-encoded in lower case": re.sub("%..", lambda escape: escape.group().lower(), quote(PASSWORD, safe="")),
    "percent-encoded without exceptions": TOKEN.replace("-", "%2D").replace("_", "%5F"),
    "plain, not ASCII": PASSWORD,
}
SAMPLE_MASKER = SecretMasker([TOKEN, PASSWORD])


def feed_all(masker: SecretMasker, *pieces: bytes) -> tuple[list[bytes], bytes]:
    """What is stored after each piece, and at the end."""
    pending, stored, found = PendingTrace(), b"", []
    for piece in pieces:
        data, pending = masker.feed(pending, piece)
        stored += data
        found.append(stored)
    data, pending = masker.feed(pending, b"", final=True)
    assert pending == PendingTrace()
    return found, stored + data


class TestMask:
    @pytest.mark.parametrize("form", FORMS)
    def test_covers_every_form_of_a_secret(self, form: str) -> None:
        masked = SAMPLE_MASKER.mask(f"before {FORMS[form]} after")

        assert masked.startswith("before ")
        assert masked.endswith(" after")
        assert len(masked.encode()) == len(f"before {FORMS[form]} after".encode())
        unmasked = masked.removeprefix("before ").removesuffix(" after").replace("*", "")
        assert len(unmasked) <= (45 if "address" in form else 26), unmasked
        assert not any(TOKEN[at : at + 6] in unmasked for at in range(6, len(TOKEN) - 6))

    def test_other_text_is_not_masked(self) -> None:
        text = "fb-17- and fb-18-a_b-C0123456789_-xYz\nüber *** pa ss/\n"

        assert SAMPLE_MASKER.mask(text) == text

    def test_a_short_value_is_no_secret(self) -> None:
        assert SecretMasker(["1234567", ""]).mask("1234567") == "1234567"

    def test_secrets_that_overlap_are_covered_whole(self) -> None:
        masker = SecretMasker(["abcabcabc", "abcabcXYZ12"])

        assert masker.mask("-abcabcabcabcXYZ12-") == "-" + "*" * 17 + "-"


class TestFeed:
    @settings(deadline=None)
    @given(st.lists(st.sampled_from(["f", "fb-17-", "\n", "ö", "**", PASSWORD[:5], *FORMS.values()]), max_size=6), st.data())
    def test_any_split_stores_what_one_piece_stores(self, parts: list[str], data: st.DataObject) -> None:
        text = "".join(parts).encode()
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
        pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]

        stages, stored = feed_all(SAMPLE_MASKER, *pieces)

        assert stored == feed_all(SAMPLE_MASKER, text)[1]
        assert len(stored) == len(text)
        # What was readable once is never more than what is in the end.
        assert all(stored.startswith(stage) for stage in stages)

    def test_one_byte_at_a_time(self) -> None:
        text = f"x {TOKEN}{TOKEN} y".encode()

        assert feed_all(SAMPLE_MASKER, *[bytes([byte]) for byte in text])[1] == b"x " + b"*" * (2 * len(TOKEN)) + b" y"

    def test_ordinary_text_is_stored_at_once(self) -> None:
        assert feed_all(SAMPLE_MASKER, b"$ make\n", b"done")[0] == [b"$ make\n", b"$ make\ndone"]

    def test_a_secret_that_the_end_cuts_short_is_masked(self) -> None:
        assert feed_all(SAMPLE_MASKER, b"x ", TOKEN[:-1].encode())[1] == b"x " + b"*" * (len(TOKEN) - 1)
        assert feed_all(SAMPLE_MASKER, b"of")[1] == b"of"

    def test_the_rest_of_a_masked_secret_is_masked_although_it_begins_another(self) -> None:
        masker = SecretMasker(["secret-one-two", "two-and-three"])
        text = b"secret-one-two-and-t"

        assert feed_all(masker, text, b"here")[1] == b"*" * 14 + b"-and-there"
        assert feed_all(masker, text, b"hree!")[1] == b"*" * 24 + b"!"
