"""Nested parameters: lists and objects, in queries and forms."""

import httpx
import pytest

NESTED = ("{}[a]=1", "{}[][a]=1", "{}[0][a]=1", "{}[a][b]=1", "{}[=1", "{}[a=1", "{}[]=1&{}[a]=1")
"""A parameter sent as what it is not: an object, or a list of objects."""


class TestNested:
    """Forms and queries, whatever the kind of the parameter: as JSON, what a parameter cannot be is 400."""

    @pytest.mark.parametrize("form", NESTED)
    @pytest.mark.parametrize("name", ["title", "due_date", "assignee_id", "labels", "state_event", "confidential"])
    async def test_no_parameter_takes_an_object(self, client: httpx.AsyncClient, name: str, form: str) -> None:
        sent = form.replace("{}", name)
        in_form = {"content": sent.encode(), "headers": {"Content-Type": "application/x-www-form-urlencoded"}}

        for settings in ({"params": sent}, in_form):
            response = await client.put("/projects/1/issues/101", **settings)  # type: ignore[arg-type]
            assert (response.status_code, list(response.json()["message"])) == (400, [name]), response.text

    @pytest.mark.parametrize("name", ["title", "due_date", "assignee_id", "state_event", "confidential"])
    async def test_scalar_parameters_reject_lists(self, client: httpx.AsyncClient, name: str) -> None:
        for sent in (f"{name}[]=1", f"{name}[0]=1", f"{name}=1&{name}[]=1"):
            response = await client.put("/projects/1/issues/101", params=sent)
            assert (response.status_code, list(response.json()["message"])) == (400, [name]), response.text

    @pytest.mark.parametrize("form", [*NESTED, "{}[]=closed"])
    async def test_a_filter_that_falls_back_does_so(self, client: httpx.AsyncClient, form: str) -> None:
        response = await client.get("/projects/1/issues", params=form.replace("{}", "state") + "&per_page=1")

        assert response.status_code == 200
        assert "state" not in response.headers["Link"], "what was not read is no filter of another page"

    @pytest.mark.parametrize("form", [*NESTED, "{}[]=2"])
    async def test_nested_paging_parameters_are_ignored(self, client: httpx.AsyncClient, form: str) -> None:
        response = await client.get("/projects/1/issues", params="&".join(form.replace("{}", name) for name in ("page", "per_page")))

        assert (response.status_code, response.headers["X-Page"], response.headers["X-Per-Page"]) == (200, "1", "20")

    @pytest.mark.parametrize("form", [*NESTED, "{}[]=ada"])
    async def test_a_credential_is_text(self, client: httpx.AsyncClient, form: str) -> None:
        assert (await client.get("/user", params=form.replace("{}", "private_token"))).status_code == 401
