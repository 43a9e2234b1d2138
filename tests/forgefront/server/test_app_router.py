"""The table of the service's routes."""

import re

import pytest

from forgefront.server.app_router import AppRoute, AppRouter, send_not_found

ROUTER = AppRouter(
    (
        AppRoute("/graphql", send_not_found, "graphql", is_api=True),
        AppRoute("/api/v3/*", send_not_found, "rest", is_api=True),
        AppRoute(re.compile(r"/\w+/\w+"), send_not_found, "project"),
        AppRoute(re.compile(r"/\w+/.+"), send_not_found, "pattern"),
    )
)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/graphql", "graphql"),
        ("/graphql/", None),
        ("/graphqls", None),
        ("/api/v3", "rest"),
        ("/api/v3/", "rest"),
        ("/api/v3/user", "rest"),
        ("/api/v30", "project"),
        ("/ada/tools", "project"),
        ("/ada/tools/x", "pattern"),
        ("/", None),
    ],
)
def test_finds_the_route_of_a_path(path: str, name: str | None) -> None:
    route = ROUTER.find(path)
    assert (route.name if route else None) == name
    assert ROUTER.is_api_path(path) is (name in ("graphql", "rest"))


def test_mounts_have_a_root_path() -> None:
    assert [ROUTER.find(path).mount_path for path in ("/api/v3/user", "/graphql", "/ada/tools")] == ["/api/v3", "", ""]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("raw_path", "path", "expected"),
    [
        (b"//api/v3/user", "//api/v3/user", ("/api/v3/user", b"/api/v3/user")),
        (b"///graphql", "///graphql", ("/graphql", b"/graphql")),
        (b"//api/v3/projects/a%2Fb", "//api/v3/projects/a/b", ("/api/v3/projects/a/b", b"/api/v3/projects/a%2Fb")),
        (b"/%2Fapi/v3/user", "//api/v3/user", ("//api/v3/user", b"/%2Fapi/v3/user")),
        (b"//ada/tools", "//ada/tools", ("//ada/tools", b"//ada/tools")),
        (b"//", "//", ("//", b"//")),
    ],
)
def test_paths_of_apis_may_begin_with_several_slashes(raw_path: bytes, path: str, expected: tuple[str, bytes]) -> None:
    scope = {"path": path, "raw_path": raw_path}
    ROUTER.drop_leading_slashes(scope)
    assert (scope["path"], scope["raw_path"]) == expected
