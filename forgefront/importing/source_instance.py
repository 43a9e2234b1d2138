"""The instance that is imported: its interface (v3 or v4), its version, and what the token may read."""

from dataclasses import dataclass, field
from typing import Any

from forgefront.importing.entity_fields import SourceEntity
from forgefront.importing.source_client import SourceClient
from forgefront.importing.source_errors import SourceError, SourceMissing, SourceSkipped, SourceUnauthorized
from forgefront.importing.source_routes import ApiVersion, route_path

ADMIN_GAPS = (
    "users who are not members of the imported projects",
    "e-mail addresses, SSH keys, directory identities and private tokens of other users",
    "application settings and system hooks",
)
"""What only an administrator of the instance can read."""


class InvalidSource(Exception):
    """The instance cannot be imported with this URL and token; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class SourceInstance:
    """`gaps` name what the token may not read."""

    client: SourceClient
    api: ApiVersion
    version: str | None
    user: dict[str, Any] = field(repr=False)
    gaps: tuple[str, ...]

    @property
    def is_admin(self) -> bool:
        return bool(self.user.get("is_admin"))

    def path(self, route: str, **values: Any) -> str:
        return route_path(self.api, route, **values)

    async def shows_tokens(self) -> bool:
        """Whether an administrator sees the private tokens of others: servers of v3's time show them to `sudo`."""
        if not self.is_admin:
            return False
        try:
            async for user in self.client.read_all(self.path("users")):
                if isinstance(user.get("id"), int) and user["id"] != self.user["id"] and user.get("state") == "active":
                    return await self.read_token(user["id"]) is not None
        except SourceSkipped:
            pass
        return False

    async def read_token(self, user_id: int) -> str | None:
        """The private token of a user; None if the instance does not show it."""
        if user_id == self.user["id"]:
            return SourceEntity(self.user).text("private_token")
        try:
            user = SourceEntity(await self.client.get_object(self.path("current_user"), {"sudo": user_id}))
        except (SourceSkipped, SourceUnauthorized):
            # Some servers treat a blocked user as nobody.
            return None
        # An instance that does not know `sudo` answers with the caller.
        return user.text("private_token") if user.id == user_id else None


async def open_source(client: SourceClient) -> SourceInstance:
    """Finds the interface of the instance and the rights of the token. Raises InvalidSource, SourceUnreachable."""
    user, api = await _read_user(client)
    gaps: list[str] = []
    if not user.get("is_admin") and api == "v4":
        # v4 shows `is_admin` only to administrators; other versions of it never do.
        user["is_admin"] = await _can_read(client, route_path(api, "settings"))
    if not user.get("is_admin"):
        gaps += ADMIN_GAPS
    elif not await _can_read(client, route_path(api, "settings")):
        gaps.append("application settings: the token lacks a scope")
    return SourceInstance(client, api, await _read_version(client, api), user, tuple(gaps))


async def _read_user(client: SourceClient) -> tuple[dict[str, Any], ApiVersion]:
    """The user of the token, from the first interface that exists: v3, where it is not gone."""
    problem: SourceError | None = None
    for api in (ApiVersion.V3, ApiVersion.V4):
        try:
            user = await client.get_object(route_path(api, "current_user"))
        except SourceUnauthorized:
            raise InvalidSource(f"{client.url} does not accept the token; is it valid, and not that of a blocked user?") from None
        except SourceMissing as error:
            problem = problem or error
        except SourceSkipped as error:
            problem = error
        else:
            if isinstance(user.get("id"), int) and isinstance(user.get("username"), str):
                return user, api
            raise InvalidSource(
                f"{client.url}{route_path(api, 'current_user')} does not answer with a user; is this the address of a forge?"
            )
    raise InvalidSource(f"{client.url} answers neither API v3 nor v4 ({problem}); name the address of the forge, without /api")


async def _read_version(client: SourceClient, api: ApiVersion) -> str | None:
    try:
        version = (await client.get_object(route_path(api, "version"))).get("version")
    except SourceSkipped:
        return None
    return version if isinstance(version, str) else None


async def _can_read(client: SourceClient, path: str) -> bool:
    try:
        await client.get(path)
    except SourceSkipped:
        return False
    return True
