"""What counts as a difference between two answers."""

import gzip
import zlib
from pathlib import Path
from typing import Any

import orjson
import pytest

from forgefront.shadow.comparison.answer_comparison import AnswerComparison, IncomparableError
from forgefront.shadow.comparison.comparison_rules import ComparisonRules, RulesError
from forgefront.shadow.comparison.example_masking import ExampleMasker
from forgefront.shadow.comparison.id_map import IdMap, UnknownIdError
from forgefront.shadow.comparison.json_comparison import MAX_DIFFERENCES
from forgefront.shadow.comparison.json_paths import JsonPath, JsonPathError, format_place
from forgefront.shadow.comparison.shadow_client import ShadowAnswer
from forgefront.shadow.comparison.value_forms import AddressNormalizer
from forgefront.shadow.exchanges import Exchange
from forgefront.shadow.settings import ShadowSettings
from rest_v3.old_ids import InvalidOldIds, OldIds
from tests.support.growth import MAX_LINEAR_GROWTH, time_growth

JSON = [("Content-Type", "application/json")]
ROUTE = "GET /api/v3/projects"


def settings(**values: Any) -> ShadowSettings:
    return ShadowSettings(old="http://old.example:81", new="https://new.example", **values)


def compare(
    old: Any,
    new: Any,
    *,
    old_headers: list[tuple[str, str]] | None = None,
    new_headers: list[tuple[str, str]] | None = None,
    statuses: tuple[int, int] = (200, 200),
    method: str = "GET",
    target: str = "/api/v3/projects",
    rules: str = "",
    ids: str | None = None,
    chosen: ShadowSettings | None = None,
) -> list[tuple[str, str]]:
    """Kind and place of each difference that no rule ignores. Bodies are JSON unless they are bytes."""
    chosen = chosen or settings()
    read = ComparisonRules.read(rules, chosen.ignored, replays_writes=ids is not None)
    id_map = None
    if ids is not None:
        id_map = IdMap(read, is_switched=chosen.is_switched)
        id_map.read(ids.splitlines())
    bodies = [body if isinstance(body, bytes) else orjson.dumps(body) for body in (old, new)]
    headers = [JSON if each is None else each for each in (old_headers, new_headers)]
    answers = list(zip(statuses, headers, bodies, strict=True))
    if chosen.is_switched:
        answers.reverse()
    exchange = Exchange(method, target, [("Host", "forge.example:8080")])
    exchange.status, exchange.response_headers, exchange.response_body = answers[0]
    found = AnswerComparison(chosen, read, id_map).compare(exchange, ShadowAnswer(*answers[1], seconds=0.1), ROUTE)
    return [
        (each.kind, each.place if isinstance(each.place, str) else format_place(each.place))
        for each in found
        if read.find_ignored(ROUTE, each.kind, each.place) is None
    ]


class TestJson:
    def test_keys_types_values_and_lists(self) -> None:
        old = {"a": 1, "b": [1, 2, 3], "c": {"d": None, "e": "x"}, "f": True, "g": 1, "h": "1", "odd key": 1, "i": [{"id": 1}, {"id": 2}]}
        new = {"a": 2, "b": [1, 3, 2], "c": {"d": "", "z": 1}, "f": 1, "g": 1.0, "h": 1, "odd key": 2, "i": [{"id": 2}, {"id": 3}]}
        assert compare(old, old) == []
        assert compare(old, new) == [
            ("value", "$.a"),
            ("order", "$.b"),
            ("type", "$.c.d"),
            ("missing", "$.c.e"),
            ("added", "$.c.z"),
            ("type", "$.f"),
            ("type", "$.h"),
            ("value", "$['odd key']"),
            ("missing", "$.i[*]"),
            ("added", "$.i[*]"),
        ]

    def test_elements_are_matched_by_identity(self) -> None:
        """A list in another order is one difference, and not one for each of its elements."""
        old = [{"id": number, "name": f"n{number}", "tags": ["a", "b"]} for number in (1, 2, 3)]
        new = [dict(each) for each in reversed(old)]
        assert compare(old, new) == [("order", "$")]
        new[0]["tags"] = ["a", "a"]
        assert compare(old, new) == [("order", "$"), ("value", "$[*].tags[*]")]
        # Without anything that identifies them, by position.
        assert compare([[1], [2]], [[2], [1], [3]]) == [("missing", "$[*][*]"), ("added", "$[*][*]")] * 2 + [("added", "$[*]")]
        assert compare([1, 1, 2], [1, 2]) == [("value", "$[*]"), ("missing", "$[*]")]

    def test_documents_are_bounded(self) -> None:
        assert len(compare({str(number): 1 for number in range(1000)}, {})) == MAX_DIFFERENCES
        deep = b"[" * 900 + b"%d" + b"]" * 900
        with pytest.raises(IncomparableError, match="levels"):
            compare(deep % 1, deep % 2)


class TestKnownDifferences:
    def test_addresses_of_the_servers_are_equal_and_others_are_not(self) -> None:
        old = {
            "web_url": "http://old.example:81/a/b",
            "http_url_to_repo": "http://forge.example:8080/a/b.git",
            "ssh_url_to_repo": "git@old.example:a/b.git",
            "text": "see http://old.example:81/a/b/issues/1, please",
        }
        new = {
            "web_url": "https://new.example/a/b",
            "http_url_to_repo": "https://new.example/a/b.git",
            "ssh_url_to_repo": "ssh://git@new.example:2222/a/b.git",
            "text": "see https://new.example/a/b/issues/1, please",
        }
        assert compare(old, new) == []
        for changed in ({"web_url": "https://new.example/a/c"}, {"web_url": "https://new.example.evil/a/b"}):
            assert compare(old, new | changed) == [("value", "$.web_url")]
        renamed = {"u": "http://git.corp/x"}, {"u": "https://new.example/x"}
        assert compare(*renamed) == [("value", "$.u")]
        assert compare(*renamed, rules='[addresses]\nhosts = ["git.corp"]') == []

    def test_the_same_moment_in_another_form_is_distinguished_from_another_moment(self) -> None:
        at = {"created_at": "2016-03-01T12:00:00.000Z"}
        assert compare(at, {"created_at": "2016-03-01T13:00:00+01:00"}) == [("format", "$.created_at")]
        assert compare(at, {"created_at": "2016-03-01T12:00:30.000Z"}) == [("value", "$.created_at")]
        assert compare(at, {"created_at": "2016-03-01T12:00:30.000Z"}, ids="") == []
        assert compare(at, {"created_at": "2016-03-01T12:30:00.000Z"}, ids="") == [("value", "$.created_at")]

    def test_headers_that_matter(self) -> None:
        old = [
            *JSON,
            ("Date", "a"),
            ("ETag", "1"),
            ("X-Total", "7"),
            (
                "Link",
                '<http://old.example:81/x?page=2&since=2016-01-01T00:00:00Z&private_token=s>; rel="next", '
                '<http://forge.example/x>; rel="first"',
            ),
        ]
        new = [
            ("content-type", "application/json"),
            ("date", "b"),
            ("x-total", "7"),
            ("link", '<https://new.example/x>;rel="first",<https://new.example/x?since=2016-01-01T01:00:00%2B01:00&page=2>; rel="next"'),
        ]
        assert compare([], [], old_headers=old, new_headers=new) == []
        changed = [("x-total", "8") if name == "x-total" else (name, value.replace("page=2", "page=3")) for name, value in new]
        assert compare([], [], old_headers=old, new_headers=changed) == [("header", "link"), ("header", "x-total")]
        assert compare([], [], old_headers=old, new_headers=changed, rules='[[ignore]]\nheader = "X-Total"\nreason = "r"') == [
            ("header", "link")
        ]

    @pytest.mark.parametrize("piece", ["<", "a.", "a-", "; ", " ", "://", "<x>;"])
    def test_long_values_take_linear_time(self, piece: str) -> None:
        addresses = AddressNormalizer(["forge.example"], frozenset())
        for name in ("link", "content-type", "location", "other"):
            growth = time_growth(lambda text, name=name: addresses.normalize_header(name, f"@{text}"), piece)  # type: ignore[misc]
            assert growth < MAX_LINEAR_GROWTH, name

    @pytest.mark.parametrize("piece", ["a:", ":", "%.", "/ci/api/v1/", 'a="', "//"])
    def test_secrets_of_long_strings_are_masked_in_linear_time(self, piece: str) -> None:
        rules = ComparisonRules.read()
        masker = ExampleMasker(rules, Exchange("GET", "/", []), masks_values=False)
        assert time_growth(lambda text: masker.mask_text(f"//{text}"), piece) < MAX_LINEAR_GROWTH

    def test_rules_ignore_places(self) -> None:
        old, new = {"a": {"b": [{"c": 1}]}, "d": 1, "last_sign_in_at": "x"}, {"a": {"b": [{"c": 2}]}, "d": 2, "last_sign_in_at": "y"}
        assert compare(old, new) == [("value", "$.a.b[*].c"), ("value", "$.d")]
        for path in ("$.a.b[*].c", "$..c", "$.a", "$['a']..[0]", "$.*.b", "$.a.b[0]", "$..*.c"):
            assert compare(old, new, chosen=settings(ignored=(path,))) == [("value", "$.d")], path
        for path in ("$.b", "$.a.b[1]", "$.a.c", "$..b.c"):
            assert len(compare(old, new, chosen=settings(ignored=(path,)))) == 2, path
        rule = '[[ignore]]\npath = "$.d"\nreason = "r"\n'
        assert len(compare(old, new, rules=rule + 'routes = ["POST *"]')) == 2
        assert len(compare(old, new, rules=rule + 'kinds = ["type"]')) == 2
        assert len(compare(old, new, rules=rule + 'when = "replay"')) == 2
        assert len(compare(old, new, rules=rule + 'routes = ["GET /api/v3/pro*"]')) == 1
        # The built-in rules can be dropped.
        assert ("value", "$.last_sign_in_at") in compare(old, new, rules="defaults = false")

    def test_mistakes_in_rules_are_reported(self) -> None:
        for rules, message in (
            ("[[ignore", "not TOML"),
            ('[[ignored]]\npath = "$"', "'ignored' is not a table"),
            ('[ignore]\npath = "$"', r"must be written as \[\[ignore\]\]"),
            ('[[ignore]]\npaths = "$"', "'ignore' has no 'paths'"),
            ('[[ignore]]\nreason = "x"', "names neither a path nor a header"),
            ('[[ignore]]\npath = "a"', "must begin with"),
            ('[[ignore]]\npath = "$"\nkinds = ["size"]', "'size' is not a kind"),
            ('[[ignore]]\npath = "$"\nwhen = "always"', "can only be"),
            ('[[tolerance]]\npath = "$"\nseconds = "soon"', "could not convert"),
            ('[[skip]]\npath = "/graphql"\nfields = "claimBuild"', "is a list of names"),
            ('[secrets]\nnames = ["("]', "unterminated|missing"),
        ):
            with pytest.raises(RulesError, match=message):
                ComparisonRules.read(rules)
        for path in ("", "x", "$x", "$.", "$[?(@.a)]", "$[1:2]", "$['a", "$...a", "$[-1]", "$.a b"):
            with pytest.raises(JsonPathError):
                JsonPath.parse(path)


class TestContent:
    def test_codings_are_undone(self) -> None:
        body = b'{"a": 1}'
        deflater = zlib.compressobj(wbits=-15)
        for coding, coded in (
            ("gzip", gzip.compress(body)),
            ("deflate", zlib.compress(body)),
            ("deflate", deflater.compress(body) + deflater.flush()),
        ):
            assert compare(coded, b'{"a":1}', old_headers=[*JSON, ("Content-Encoding", coding)]) == []
        for coding, coded, reason in (
            ("br", body, "content coding br"),
            ("gzip", b"rubbish", "malformed content coding"),
            ("gzip", gzip.compress(b"0" * 20_000_000), "decoded body over the limit"),
        ):
            with pytest.raises(IncomparableError, match=reason):
                compare(coded, b"1", old_headers=[*JSON, ("Content-Encoding", coding)])

    def test_what_is_not_json_is_compared_as_bytes(self) -> None:
        text = [("Content-Type", "text/plain")]
        assert compare(b"a", b"a", old_headers=text, new_headers=text) == []
        assert compare(b"a", b"b", old_headers=text, new_headers=text) == [("body", "$")]
        assert compare(b"{", b"{}") == [("body", "$")]
        assert compare(b"{}", b"{}", new_headers=text) == [("header", "content-type")]

    def test_of_different_statuses_is_not_compared(self) -> None:
        assert compare({"a": 1}, {"message": "404 Not found"}, statuses=(200, 404)) == [("status", "$")]
        assert compare(b"", b"", method="HEAD", old_headers=[*JSON, ("X-Total", "1")]) == [("header", "x-total")]


class TestIds:
    def test_are_mapped_in_requests(self) -> None:
        ids = IdMap(ComparisonRules.read())
        ids.read(["kind\told\tnew", "# projects", "project\t3\t30", "user\t5\t6"])
        ids.add("issue", 41, 99)
        assert (
            ids.map_target("/api/v3/projects/3/issues/41/notes?user_id=5&page=5") == "/api/v3/projects/30/issues/99/notes?user_id=6&page=5"
        )
        assert ids.map_target("/api/v3/projects/a%2Fb/issues/7?q=%zz") == "/api/v3/projects/a%2Fb/issues/7?q=%zz"
        assert ids.map_body("application/json", b'{"assignee_id":5,"title":"5","milestone_id":null}') == (
            b'{"assignee_id":6,"title":"5","milestone_id":null}'
        )
        assert ids.map_body("application/x-www-form-urlencoded", b"user_id=5&title=caf%E9+5") == b"user_id=6&title=caf%E9+5"
        assert ids.map_body("application/json", b"not json") == b"not json"
        for target in ("/api/v3/projects/4", "/api/v3/projects/30", "/api/v3/issues/99"):
            # Not in the file, which is complete; or the id of something else there.
            with pytest.raises(UnknownIdError):
                ids.map_target(target)
        assert ids.map_target("/api/v3/issues/7") == "/api/v3/issues/7"
        for line in ("project\t3", "project\tx\t4", "project\t-1\t4", "project\t1/3\t4", "deploy_key\t3\t4", "group\t3\t4"):
            with pytest.raises(InvalidOldIds, match="line 2"):
                ids.read(["kind\told\tnew", line])

    def test_of_a_file_that_was_edited_are_those_of_the_service(self, tmp_path: Path) -> None:
        """Both read a file in the same way, whatever an editor or a spreadsheet made of it."""
        text = "\ufeffkind \told\tnew\r\n # projects\n project\t12\t4711\r\nproject\t 13\t4712 \n\t \t\n"
        (tmp_path / "ids.tsv").write_text(text, encoding="utf-8", newline="")
        old_ids, ids = OldIds.read(tmp_path / "ids.tsv"), IdMap(ComparisonRules.read())
        ids.read(text.splitlines())
        for old, new in (("12", "4711"), ("13", "4712")):
            assert old_ids.translate("/projects/:id", [old]) == [new]
            assert ids.map_target(f"/api/v3/projects/{old}") == f"/api/v3/projects/{new}"

        for line in ("project\tx\t3", "project\t1/2\t3", "project\t3\t99999999999", "deploy_key\t3\t4", "project\t7\t8\nproject\t7\t9"):
            (tmp_path / "ids.tsv").write_text(line)
            with pytest.raises(InvalidOldIds):
                OldIds.read(tmp_path / "ids.tsv")
            with pytest.raises(InvalidOldIds, match=r"line [12]: "):
                IdMap(ComparisonRules.read()).read(line.splitlines())

    @pytest.mark.parametrize("is_switched", [False, True])
    def test_of_keys_are_known_by_where_they_are(self, is_switched: bool) -> None:
        """A deploy key of the old server belongs to several projects, with a new id in each."""
        ids = IdMap(ComparisonRules.read(), is_switched=is_switched)
        ids.read(["deploy_key\t3/8\t93", "deploy_key\t4/8\t94", "project\t3\t30", "project\t4\t40", "ssh_key\t8\t80", "namespace\t2\t20"])
        for old, new in (
            ("/api/v3/projects/3/keys/8", "/api/v3/projects/30/keys/93"),
            ("/api/v3/projects/4/deploy_keys/8", "/api/v3/projects/40/deploy_keys/94"),
            ("/api/v3/user/keys/8", "/api/v3/user/keys/80"),
            ("/api/v3/groups/2", "/api/v3/groups/20"),
            ("/api/v3/projects?namespace_id=2", "/api/v3/projects?namespace_id=20"),
        ):
            assert ids.map_target(new if is_switched else old) == (old if is_switched else new)
        unknown = "/api/v3/projects/30/keys/8" if is_switched else "/api/v3/projects/3/keys/93"
        for target in (unknown, "/api/v3/projects/a%2Fb/keys/8"):
            with pytest.raises(UnknownIdError):
                ids.map_target(target)
        assert ids.kind_of_path("/api/v3/projects/3/keys") == "deploy_key/3"

    def test_that_are_mapped_are_equal(self) -> None:
        ids = "project\t3\t30\nuser\t5\t6\nissue\t41\t99\nissue\t42\t98"
        old = [
            {"id": 41, "iid": 1, "project_id": 3, "author": {"id": 5}, "labels": ["x"]},
            {"id": 42, "iid": 2, "project_id": 3, "noteable_id": 41, "noteable_type": "Issue"},
        ]
        new = [
            {"id": 99, "iid": 1, "project_id": 30, "author": {"id": 6}, "labels": ["x"]},
            {"id": 98, "iid": 2, "project_id": 30, "noteable_id": 99, "noteable_type": "Issue"},
        ]
        target = "/api/v3/projects/3/issues"
        assert compare(old, new, target=target, ids=ids) == []
        assert compare(old, new, target=target, ids=ids, chosen=settings(is_switched=True)) == []
        new[0]["author"] = {"id": 5}
        new[1]["project_id"] = 3
        assert compare(old, new, target=target, ids=ids) == [("value", "$[*].author.id"), ("value", "$[*].project_id")]
        assert ("missing", "$[*]") in compare(old, new, target=target)

    def test_of_creations_are_learned(self) -> None:
        ids = IdMap(ComparisonRules.read())
        ids.record_created("/api/v3/projects/3/issues", {"id": 41, "author": {"id": 1}}, {"id": 44, "author": {"id": 2}})
        ids.record_created("/api/v3/projects/3/issues", {"id": 41}, {"id": 45})
        ids.record_created("/api/v3/projects/3/issues", [1], {"id": 45})
        assert (ids.find("issue", 41), ids.find("issue", 44), ids.find("user", 1)) == (44, None, 1)
