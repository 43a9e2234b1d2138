"""The reference of the schema at /-/reference."""

import re
from functools import cache

import httpx
from starlette.types import Receive, Scope, Send

from forgefront.pages.reference import ReferenceApp, render_page
from graph.schema import graphql_schema
from rest_v3.routes import ROUTES


@cache
def rendered_page() -> str:
    return render_page("/git")


def anchors() -> list[str]:
    return re.findall(r' id="([^"]+)"', rendered_page())


def test_every_type_and_every_member_is_on_it() -> None:
    expected = set()
    for name, kind in graphql_schema.type_map.items():
        if name.startswith("__") or name in ("Int", "Float", "String", "Boolean", "ID"):
            continue
        if name not in ("Query", "Mutation", "Subscription"):
            expected.add(name)
        expected |= {f"{name}.{member}" for member in {**getattr(kind, "fields", {}), **getattr(kind, "values", {})}}
    assert expected <= set(anchors())


def test_every_link_leads_somewhere() -> None:
    assert len(anchors()) == len(set(anchors()))
    assert set(re.findall(r'href="#([^"]+)"', rendered_page())) <= set(anchors())
    assert {
        address.partition("/git/")[0] for address in re.findall(r'(?:href|src)="([^#"]+)"', rendered_page()) if address != "data:,"
    } == {""}


def test_lists_every_v3_route_next_to_its_field() -> None:
    assert set(re.findall(r"<code>([A-Z]+ /[^<]*)</code>", rendered_page())) >= {route.call for route in ROUTES}
    issue = rendered_page().partition('<section id="Issue">')[2].partition("</section>")[0]
    assert "<code>GET /projects/:id/issues/:issue_id</code>" in issue


async def test_the_reference_and_its_files_are_served() -> None:
    app_ = ReferenceApp("https://forge.example.com/git")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"] = {}
        await app_(scope, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://forge") as client:
        first = await client.get("/-/reference")
        assert first.text == rendered_page()
        assert "script-src 'self'" in first.headers["Content-Security-Policy"]
        assert (await client.get("/-/reference", headers={"If-None-Match": first.headers["ETag"]})).status_code == 304
        for address in re.findall(r'(?:href|src)="/git(/-/reference/[^"]+)"', rendered_page()):
            assert (await client.get(address)).status_code == 200
        assert (await client.get("/-/reference/page.template")).status_code == 404
