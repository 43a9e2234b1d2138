"""Where the protocol is mounted, and how its paths are spelled: runners of the time end each in `.json`."""

from rest_v3.door import Door, Scope

BASE = "/ci/api/v1"
SUFFIX = ".json"


class RunnerDoor(Door):
    base = BASE

    def segments_of(self, scope: Scope) -> list[str]:
        *above, last = super().segments_of(scope) or [""]
        return [*above, last.removesuffix(SUFFIX)]
