"""Webhook payloads: a dataclass per event, whose fields are the closed schema of its body (docs/wire-facts.md 10).

This module has the system events, which all system hooks receive; `object_payloads` has the events of a switch.

`of(context, …)` makes a payload from rows, through the operation's loaders. Timestamps have no milliseconds.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Self

from graph.context import Context
from storage import tables
from storage.tables import AccessLevel, NamespaceKind, Visibility


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPayload(ABC):
    """The payload of an event. `event_name` is shown in the delivery log.

    `switch` is the boolean column of hooks that subscribes to the event; None: all system hooks receive it.
    """

    event_name: ClassVar[str]
    switch: ClassVar[str | None] = None

    @classmethod
    @abstractmethod
    async def of(cls, *subjects: Any, **more: Any) -> Self:
        """Makes the payload from the context and the event's subjects; each event defines its own arguments."""

    @classmethod
    def project_id_of(cls, *subjects: Any) -> int | None:
        """The project whose hooks receive the event, too; None for system events."""
        return None

    @classmethod
    async def system_hook_body(cls, *arguments: Any) -> dict[str, Any]:
        """The JSON body for system hooks; the arguments are those of `of`."""
        return (await cls.of(*arguments)).body()

    @classmethod
    async def project_hook_body(cls, *arguments: Any) -> dict[str, Any]:
        """The JSON body for hooks of the project; the arguments are those of `of`."""
        return await cls.system_hook_body(*arguments)

    def body(self) -> dict[str, Any]:
        """Returns the JSON body of the webhook."""
        return {"event_name": self.event_name, **asdict(self)}


def format_timestamp(value: datetime) -> str:
    """Formats a timestamp as `2016-01-19T08:40:25Z`."""
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def timestamps_of(row: Any) -> dict[str, Any]:
    return {"created_at": format_timestamp(row.created_at), "updated_at": format_timestamp(row.updated_at)}


def visibility_name(project: tables.Project) -> str:
    return Visibility(project.visibility_level).name.lower()


def access_level_name(member: tables.ProjectMember | tables.GroupMember) -> str:
    """Returns the name of a member's access level, such as `Developer`."""
    return AccessLevel(member.access_level).name.capitalize()


async def namespace_of(context: Context, project: tables.Project) -> tables.Namespace:
    namespace: tables.Namespace = await get_existing(context, tables.Namespace, project.namespace_id)
    return namespace


async def full_path(context: Context, project: tables.Project) -> str:
    return f"{(await namespace_of(context, project)).path}/{project.path}"


async def get_existing(context: Context, table: Any, id: int) -> Any:
    row = await context.rows_by_id(table).get(id)
    assert row is not None, "a foreign key refers to it"  # noqa: S101
    return row


# Projects


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectEventPayload(EventPayload):
    """The owner of a group's project is the group, and `owner_email` is empty."""

    created_at: str
    updated_at: str
    project_id: int
    name: str
    path: str
    path_with_namespace: str
    owner_name: str
    owner_email: str
    project_visibility: str

    @classmethod
    async def of(cls, context: Context, project: tables.Project) -> Self:
        return cls(**await project_fields(context, project))


async def project_fields(context: Context, project: tables.Project) -> dict[str, Any]:
    namespace = await namespace_of(context, project)
    owner_name, owner_email = namespace.name, ""
    if namespace.kind is NamespaceKind.USER and namespace.owner_id is not None:
        owner: tables.User = await get_existing(context, tables.User, namespace.owner_id)
        owner_name, owner_email = owner.name, owner.email
    return {
        **timestamps_of(project),
        "project_id": project.id,
        "name": project.name,
        "path": project.path,
        "path_with_namespace": f"{namespace.path}/{project.path}",
        "owner_name": owner_name,
        "owner_email": owner_email,
        "project_visibility": visibility_name(project),
    }


class ProjectCreated(ProjectEventPayload):
    __slots__ = ()
    event_name = "project_create"


class ProjectDestroyed(ProjectEventPayload):
    __slots__ = ()
    event_name = "project_destroy"


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedProjectEventPayload(ProjectEventPayload):
    """The current project and its previous full path."""

    old_path_with_namespace: str

    @classmethod
    async def of(cls, context: Context, project: tables.Project, old_path_with_namespace: str = "") -> Self:
        return cls(**await project_fields(context, project), old_path_with_namespace=old_path_with_namespace)


class ProjectRenamed(MovedProjectEventPayload):
    __slots__ = ()
    event_name = "project_rename"


class ProjectTransferred(MovedProjectEventPayload):
    __slots__ = ()
    event_name = "project_transfer"


# Users and their keys


@dataclass(frozen=True, slots=True, kw_only=True)
class UserEventPayload(EventPayload):
    created_at: str
    updated_at: str
    user_id: int
    username: str
    name: str
    email: str

    @classmethod
    async def of(cls, context: Context, user: tables.User) -> Self:
        return cls(**timestamps_of(user), user_id=user.id, username=user.username, name=user.name, email=user.email)


class UserCreated(UserEventPayload):
    __slots__ = ()
    event_name = "user_create"


class UserDestroyed(UserEventPayload):
    __slots__ = ()
    event_name = "user_destroy"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEventPayload(EventPayload):
    created_at: str
    updated_at: str
    id: int
    key: str
    username: str

    @classmethod
    async def of(cls, context: Context, key: tables.SshKey) -> Self:
        owner: tables.User = await get_existing(context, tables.User, key.user_id)
        return cls(**timestamps_of(key), id=key.id, key=key.key, username=owner.username)


class KeyCreated(KeyEventPayload):
    __slots__ = ()
    event_name = "key_create"


class KeyDestroyed(KeyEventPayload):
    __slots__ = ()
    event_name = "key_destroy"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployKeyEventPayload(EventPayload):
    created_at: str
    updated_at: str
    id: int
    key: str

    @classmethod
    async def of(cls, context: Context, key: tables.DeployKey) -> Self:
        return cls(**timestamps_of(key), id=key.id, key=key.key)


class DeployKeyCreated(DeployKeyEventPayload):
    __slots__ = ()
    event_name = "deploykey_create"


class DeployKeyDestroyed(DeployKeyEventPayload):
    __slots__ = ()
    event_name = "deploykey_destroy"


# Members


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectMemberEventPayload(EventPayload):
    created_at: str
    updated_at: str
    project_id: int
    project_name: str
    project_path: str
    project_path_with_namespace: str
    project_visibility: str
    user_id: int
    user_username: str
    user_name: str
    user_email: str
    access_level: str

    @classmethod
    async def of(cls, context: Context, member: tables.ProjectMember) -> Self:
        project: tables.Project = await get_existing(context, tables.Project, member.project_id)
        user: tables.User = await get_existing(context, tables.User, member.user_id)
        return cls(
            **timestamps_of(member),
            project_id=project.id,
            project_name=project.name,
            project_path=project.path,
            project_path_with_namespace=await full_path(context, project),
            project_visibility=visibility_name(project),
            user_id=user.id,
            user_username=user.username,
            user_name=user.name,
            user_email=user.email,
            access_level=access_level_name(member),
        )


class UserAddedToProject(ProjectMemberEventPayload):
    __slots__ = ()
    event_name = "user_add_to_team"


class UserRemovedFromProject(ProjectMemberEventPayload):
    __slots__ = ()
    event_name = "user_remove_from_team"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMemberEventPayload(EventPayload):
    created_at: str
    updated_at: str
    group_id: int
    group_name: str
    group_path: str
    user_id: int
    user_username: str
    user_name: str
    user_email: str
    group_access: str

    @classmethod
    async def of(cls, context: Context, member: tables.GroupMember) -> Self:
        group: tables.Namespace = await get_existing(context, tables.Namespace, member.group_id)
        user: tables.User = await get_existing(context, tables.User, member.user_id)
        return cls(
            **timestamps_of(member),
            group_id=group.id,
            group_name=group.name,
            group_path=group.path,
            user_id=user.id,
            user_username=user.username,
            user_name=user.name,
            user_email=user.email,
            group_access=access_level_name(member),
        )


class UserAddedToGroup(GroupMemberEventPayload):
    __slots__ = ()
    event_name = "user_add_to_group"


class UserRemovedFromGroup(GroupMemberEventPayload):
    __slots__ = ()
    event_name = "user_remove_from_group"


# Groups


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEventPayload(EventPayload):
    """The owner is null, because a group may have several."""

    created_at: str
    updated_at: str
    group_id: int
    name: str
    path: str
    owner_name: None = None
    owner_email: None = None

    @classmethod
    async def of(cls, context: Context, group: tables.Namespace) -> Self:
        return cls(**timestamps_of(group), group_id=group.id, name=group.name, path=group.path)


class GroupCreated(GroupEventPayload):
    __slots__ = ()
    event_name = "group_create"


class GroupDestroyed(GroupEventPayload):
    __slots__ = ()
    event_name = "group_destroy"


# The test of a hook


SAMPLE_NAME = ProjectCreated.event_name
SAMPLE = {
    "event_name": SAMPLE_NAME,
    "name": "Ruby",
    "path": "ruby",
    "project_id": 1,
    "owner_name": "Someone",
    "owner_email": "example@gitlabhq.com",
}
"""Payload of a hook's test delivery, also returned to the caller."""
