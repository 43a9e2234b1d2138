"""Mounts the protocol. Paths of runners end in `.json`."""

from rest_v3.app import RestApp, Scope

BASE = "/ci/api/v1"
PATH_SUFFIX = ".json"


class RunnerApiApp(RestApp):
    base = BASE

    def split_path(self, scope: Scope) -> list[str]:
        *parents, last = super().split_path(scope) or [""]
        return [*parents, last.removesuffix(PATH_SUFFIX)]
