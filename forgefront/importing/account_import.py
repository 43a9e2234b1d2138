"""Imports what belongs to the instance: settings, users with their keys and addresses, groups with their members, system hooks."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from forgefront.importing import entity_mapping
from forgefront.importing.entity_fields import InvalidEntity, Item, SourceEntity
from forgefront.importing.import_report import ImportReport
from forgefront.importing.import_run import CollectionState, ImportRun, for_each
from forgefront.importing.import_target import BatchWriter
from forgefront.importing.source_errors import SourceSkipped

NO_TOKENS = "the source does not show the private tokens of other users: they get new ones"


@dataclass
class AccountImporter:
    """`namespace_ids` are those of personal namespaces, by username."""

    run: ImportRun
    namespace_ids: dict[str, int] = field(default_factory=dict)
    can_read_tokens: bool = False
    owners: list[SourceEntity] = field(default_factory=list)
    """Owners of the imported personal projects."""
    members: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    """The members ("PARENT/USER") of each group and project whose members were read completely, by kind and parent."""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def import_settings(self) -> None:
        path = self.run.source.path("settings")
        try:
            settings = SourceEntity(await self.run.source.client.get_object(path))
        except SourceSkipped as error:
            self.run.report.skip("settings", path, error.reason)
            return
        self.run.report.count("settings").read += 1
        await self.run.target.write_settings(entity_mapping.map_settings(settings))

    async def import_users(self) -> None:
        """Imports all users, with their addresses and keys."""
        await self._read_namespaces()
        self.can_read_tokens = await self.run.source.shows_tokens()
        if not self.can_read_tokens:
            self.run.report.note(NO_TOKENS)
        page: list[SourceEntity] = []
        state = CollectionState()
        async for user in self.run.read("users", self.run.source.path("users"), state=state):
            page.append(user)
            if len(page) == 100:
                await self._import_page(page)
                page = []
        await self._import_page(page)

    async def ensure_users(self, users: list[SourceEntity]) -> None:
        """Imports the users of this list who were not imported in this run, as authors of contents are."""
        if all(user.id is None or str(user.id) in self.run.known_users for user in users):
            return
        # Another task that meets the same user waits until the row is there.
        async with self._lock:
            unknown = {user.id: user for user in users if user.id is not None and str(user.id) not in self.run.known_users}
            found = list[SourceEntity]()
            for user_id, user in unknown.items():
                path = self.run.source.path("user", user=user_id)
                self.run.report.count("users").read += 1
                try:
                    found.append(SourceEntity({**user.fields, **await self.run.source.client.get_object(path)}))
                except SourceSkipped as error:
                    self.run.report.skip("users", path, error.reason)
            await self._import_page(found)
            self.run.known_users |= set(map(str, unknown))

    async def _read_namespaces(self) -> None:
        if not self.run.source.is_admin:
            return
        state = CollectionState()
        async for namespace in self.run.read("namespaces", self.run.source.path("namespaces"), state=state):
            if namespace.text("kind") == "user" and namespace.id is not None:
                self.namespace_ids[(namespace.text("path") or "").lower()] = namespace.id
        self.run.report.counts.pop("namespaces")

    def record_namespace(self, project: SourceEntity) -> None:
        """Records the personal namespace of a project, for sources that do not list namespaces."""
        namespace, owner = project.entity("namespace"), project.entity("owner")
        if namespace.id is not None and owner.text("username") and owner.text("username") == namespace.text("path"):
            self.namespace_ids.setdefault((owner.text("username") or "").lower(), namespace.id)

    async def _import_page(self, users: list[SourceEntity]) -> None:
        tokens: dict[int, str | None] = {}

        async def read_token(user: SourceEntity) -> None:
            if user.id is not None and (self.can_read_tokens or user.id == self.run.source.user["id"]):
                tokens[user.id] = await self.run.source.read_token(user.id)

        await for_each(users, read_token, parallel=self.run.parallel)
        writer = BatchWriter(self.run.target, "users")
        for user in users:
            where = self.run.source.path("user", user=user.id)
            try:
                await writer.add(where, self._map_user(user, tokens.get(user.id or 0)))
            except InvalidEntity as error:
                self.run.report.skip("users", where, str(error))
        await writer.flush()
        if self.run.source.is_admin:
            await self._import_belongings(users)
        self.run.known_users |= {str(user.id) for user in users}

    def _map_user(self, user: SourceEntity, token: str | None) -> Item:
        report_parts_of_user(self.run.report, user)
        return entity_mapping.map_user(
            user, namespace_id=self.namespace_ids.get((user.text("username") or "").lower()), private_token=token
        )

    async def _import_belongings(self, users: list[SourceEntity]) -> None:
        writers = {kind: BatchWriter(self.run.target, kind) for kind, _, _ in USER_COLLECTIONS}

        async def read_belongings(user: SourceEntity) -> None:
            if user.id is None:
                return
            for kind, route, map_entity in USER_COLLECTIONS:
                path = self.run.source.path(route, user=user.id)
                async for where, item in self.run.read_mapped(kind, path, partial(map_entity, user)):
                    await writers[kind].add(where, item)

        await for_each(users, read_belongings, parallel=self.run.parallel)
        for writer in writers.values():
            await writer.flush()

    async def import_groups(self, group_times: dict[int, SourceEntity], only: str | None = None) -> None:
        """Imports all groups with their members, or only the group `only`. `group_times` are the namespaces of projects, which show when a
        group was created."""
        groups: list[SourceEntity] = []
        if only is not None:
            groups.append(SourceEntity(await self.run.source.client.get_object(self.run.source.path("group", group=only))))
            self.run.report.count("groups").read += 1
        else:
            async for group in self.run.read("groups", self.run.source.path("groups"), state=CollectionState()):
                groups.append(SourceEntity({name: group.fields.get(name) for name in ("id", "name", "path", "full_path", "description")}))
        writer = BatchWriter(self.run.target, "groups")
        for group in sorted(groups, key=lambda each: each.id or 0):
            where = self.run.source.path("group", group=group.id)
            report_place_of_group(self.run.report, where, group)
            try:
                await writer.add(where, entity_mapping.map_group(group, group_times.get(group.id or 0, SourceEntity(None))))
            except InvalidEntity as error:
                self.run.report.skip("groups", where, str(error))
        await writer.flush()
        members = BatchWriter(self.run.target, "group members")

        async def read_members(group: SourceEntity) -> None:
            path = self.run.source.path("group_members", group=group.id)
            await self.import_members("group members", path, str(group.id), members)

        await for_each(groups, read_members, parallel=self.run.parallel)
        await members.flush()

    async def import_members(self, kind: str, path: str, parent_id: str, writer: BatchWriter) -> None:
        """Imports the members of a group or project."""
        mapper = MEMBER_MAPPERS[kind]
        state = CollectionState()
        current = set[str]()
        async for member in self.run.read(kind, path, state=state):
            where = f"{path}/{member.id}"
            current.add(f"{parent_id}/{member.id}")
            report_end_of_member(self.run.report, kind, where, member)
            await self.ensure_users([member])
            try:
                await writer.add(where, mapper(parent_id, member))
            except InvalidEntity as error:
                self.run.report.skip(kind, where, str(error))
        if state.is_complete:
            self.members.setdefault(kind, {})[parent_id] = current

    async def report_removed_members(self) -> None:
        """Reports members that were removed in the source: an import deletes nothing, so they keep their access here."""
        for kind, identity_kind in (("group members", "GROUP_MEMBER"), ("project members", "PROJECT_MEMBER")):
            members = self.members.get(kind, {})
            async for source_id in self.run.target.list_source_ids(identity_kind):
                current = members.get(source_id.partition("/")[0])
                if current is not None and source_id not in current:
                    self.run.report.record_omission(
                        kind, source_id, "was removed on the old server, and is still a member here: remove them by hand"
                    )

    async def import_system_hooks(self) -> None:
        path = self.run.source.path("system_hooks")
        writer = BatchWriter(self.run.target, "hooks")

        def map_hook(hook: SourceEntity) -> Item:
            return {**entity_mapping.map_hook(None, hook), "enabled": self.run.options.enables_hooks}

        await writer.write_all(self.run.read_mapped("hooks", path, map_hook))

    async def import_runners(self) -> None:
        """Imports all runners, with their tokens where the source shows them."""
        writer, state = BatchWriter(self.run.target, "runners"), CollectionState()
        async for listed in self.run.read("runners", self.run.source.path("runners"), state=state):
            path = self.run.source.path("runner", runner=listed.id)
            try:
                await writer.add(path, entity_mapping.map_runner(SourceEntity(await self.run.source.client.get_object(path))))
            except (SourceSkipped, InvalidEntity) as error:
                self.run.report.skip("runners", path, error.reason)
        await writer.flush()


def report_parts_of_user(report: ImportReport, user: SourceEntity) -> None:
    """Reports what is left behind of a user who is imported."""
    identities = user.fields.get("identities")
    if isinstance(identities, list) and len(identities) > 1:
        report.record_omission("users", f"/users/{user.id}", f"{len(identities) - 1} further directory identities: a user has one here")
    if user.boolean("external"):
        reason = "its limits: an external user would see internal projects here, and is blocked until an administrator decides"
        report.record_omission("users", f"/users/{user.id}", reason)
    if user.boolean("two_factor_enabled"):
        report.record_omission("users", f"/users/{user.id}", "the second factor: it is set up again")


def report_place_of_group(report: ImportReport, where: str, group: SourceEntity) -> None:
    if "/" in (group.text("full_path") or ""):
        report.record_omission("groups", where, f"its place in {group.text('full_path')}: groups here do not nest")


def report_end_of_member(report: ImportReport, kind: str, where: str, member: SourceEntity) -> None:
    if expires_on := member.day("expires_at"):
        report.record_omission(kind, where, f"its end on {expires_on}: remove the member by hand then")


def _map_further_email(user: SourceEntity, email: SourceEntity) -> Item | None:
    # v4 lists the primary address too.
    return None if email.text("email") == user.text("email") else entity_mapping.map_email(str(user.id), email)


def _map_key_of_user(user: SourceEntity, key: SourceEntity) -> Item | None:
    return entity_mapping.map_public_key("userId", str(user.id), key)


USER_COLLECTIONS: tuple[tuple[str, str, Callable[[SourceEntity, SourceEntity], Item | None]], ...] = (
    ("emails", "user_emails", _map_further_email),
    ("SSH keys", "user_keys", _map_key_of_user),
)
"""What administrators see of each user: kind, route, and mapping of an entry of a user."""
MEMBER_MAPPERS: dict[str, Callable[[str, SourceEntity], Item]] = {
    "group members": entity_mapping.map_group_member,
    "project members": entity_mapping.map_project_member,
}
