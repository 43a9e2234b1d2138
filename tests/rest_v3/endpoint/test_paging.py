"""Pages: the requested one, and the paging headers."""

from typing import Any

import httpx
import pytest

from rest_v3.pagination import PageRequest, build_headers, encode_query, read_page_request
from rest_v3.requests.values import MAX_INT
from tests.rest_v3.support.interface_rules import cites


@cites("Limits: lists are paged by page, from one, and per_page")
@pytest.mark.parametrize(
    ("sent", "page"),
    [
        ({}, PageRequest(1, 20)),
        ({"page": "3", "per_page": "7"}, PageRequest(3, 7)),
        ({"page": 3, "per_page": 100}, PageRequest(3, 100)),
        ({"per_page": "101"}, PageRequest(1, 100)),
        ({"per_page": "100000"}, PageRequest(1, 100)),
        ({"per_page": "9" * 400}, PageRequest(1, 100)),
        ({"page": "0", "per_page": "0"}, PageRequest(1, 20)),
        ({"page": "-1", "per_page": "-5"}, PageRequest(1, 20)),
        ({"page": "abc", "per_page": "1.5"}, PageRequest(1, 20)),
        ({"page": "", "per_page": " "}, PageRequest(1, 20)),
        ({"page": None, "per_page": True}, PageRequest(1, 20)),
        ({"page": [2], "per_page": {}}, PageRequest(1, 20)),
        ({"page": "٣"}, PageRequest(1, 20)),
    ],
)
def test_reads_a_page(sent: dict[str, Any], page: PageRequest) -> None:
    assert read_page_request(sent) == page


@pytest.mark.parametrize("number", ["999999999999", "9" * 18, "9" * 4000, 2**62])
def test_the_offset_of_an_enormous_page_stays_a_graphql_int(number: Any) -> None:
    assert read_page_request({"page": number}).offset == MAX_INT


def page_headers(page: PageRequest, **settings: Any) -> dict[str, str]:
    defaults: dict[str, Any] = {"total": None, "has_more": False, "url": "https://f/api/v3/issues", "filters": []}
    return {name.decode(): value.decode() for name, value in build_headers(page, **{**defaults, **settings})}


class TestHeaders:
    def test_in_the_middle(self) -> None:
        found = page_headers(PageRequest(2, 10), total=45, filters=[("state", "opened"), ("labels", "a, b")])
        link = found.pop("link")
        assert found == {
            "x-total": "45",
            "x-total-pages": "5",
            "x-per-page": "10",
            "x-page": "2",
            "x-next-page": "3",
            "x-prev-page": "1",
        }
        assert link == ", ".join(
            f'<https://f/api/v3/issues?labels=a%2C+b&page={number}&per_page=10&state=opened>; rel="{place}"'
            for place, number in [("prev", 1), ("next", 3), ("first", 1), ("last", 5)]
        )

    def test_the_first_and_the_last_page(self) -> None:
        first, last = page_headers(PageRequest(1, 10), total=20), page_headers(PageRequest(2, 10), total=20)
        assert (first["x-prev-page"], first["x-next-page"]) == ("", "2")
        assert (last["x-prev-page"], last["x-next-page"]) == ("1", "")
        assert 'rel="prev"' not in first["link"]
        assert 'rel="next"' not in last["link"]

    def test_an_empty_list(self) -> None:
        found = page_headers(PageRequest(1, 20), total=0)
        assert (found["x-total"], found["x-total-pages"]) == ("0", "0")
        assert [part.split("rel=")[1] for part in found["link"].split(", ")] == ['"first"', '"last"']
        assert "page=0&" in found["link"]

    def test_without_a_total(self) -> None:
        found = page_headers(PageRequest(2, 20), has_more=True)
        assert "x-total" not in found
        assert "x-total-pages" not in found
        assert found["x-next-page"] == "3"
        assert [part.split("rel=")[1] for part in found["link"].split(", ")] == ['"prev"', '"next"', '"first"']

    def test_query_values_are_escaped_in_links(self) -> None:
        assert encode_query([('a">', "b>,<\r\n&=")]) == "a%22%3E=b%3E%2C%3C%0D%0A%26%3D"


class TestLists:
    async def test_links_name_the_known_filters_only(self, client: httpx.AsyncClient) -> None:
        response = await client.get(
            "/projects/1/issues?state=opened&private_token=ada&sudo=1&id=9&next_url=x&per_page=500&page=0&iid[]=1&iid[]=2"
        )
        assert response.status_code == 200
        link = response.headers["link"]
        assert "https://forge.example/api/v3/projects/1/issues?iid%5B%5D=1&iid%5B%5D=2&page=1&per_page=100&state=opened" in link
        for word in ("ada", "token", "sudo", "next_url", "id=9"):
            assert word not in link

    @cites("Limits: lists are paged by page, from one, and per_page")
    async def test_following_next_links_returns_every_entry_once(self, client: httpx.AsyncClient) -> None:
        found: list[int] = []
        url = "/projects/1/issues?per_page=10"
        while url:
            response = await client.get(url)
            found += [issue["iid"] for issue in response.json()]
            url = response.links.get("next", {}).get("url", "").replace("https://forge.example/api/v3", "")
        assert found == list(range(1, 46))

    async def test_past_the_end_is_an_empty_list(self, client: httpx.AsyncClient) -> None:
        for page in ("4", "99999", "9" * 100):
            response = await client.get(f"/projects/1/issues?page={page}")
            assert (response.status_code, response.json()) == (200, [])

    async def test_links_escape_the_path(self, client: httpx.AsyncClient) -> None:
        response = await client.get("/projects/group%2Fname//issues/")
        assert "<https://forge.example/api/v3/projects/group%2Fname/issues?" in response.headers["link"]

    async def test_a_list_without_a_total(self, client: httpx.AsyncClient) -> None:
        response = await client.get("/projects/1/endless?per_page=40")
        assert len(response.json()) == 40
        assert response.headers["x-next-page"] == "2"
        assert "x-total" not in response.headers
        response = await client.get("/projects/1/endless?per_page=40&page=2")
        assert (len(response.json()), response.headers["x-next-page"]) == (5, "")

    async def test_a_whole_list_has_no_paging(self, client: httpx.AsyncClient) -> None:
        response = await client.get("/projects/1/whole?per_page=3&page=2")
        assert len(response.json()) == 45
        assert not {"link", "x-page"} & response.headers.keys()
