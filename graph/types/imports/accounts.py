"""Imports of what belongs to users and groups."""

from datetime import datetime

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.imports.batches import ItemResult
from graph.rules.imports.groups import GROUP_MEMBERS, GROUPS
from graph.rules.imports.user_resources import EMAILS, SSH_KEYS
from graph.types.accounts.members import AccessLevel
from graph.types.imports.items import RESULTS, ImportInput, source_id, write_inputs
from graph.types.inputs import optional


@strawberry.input(description="A secondary email address of a user.")
class ImportEmailInput:
    source_id: strawberry.ID = source_id()
    user_id: strawberry.ID = strawberry.field(description="The source's ID of the user.")
    email: str = strawberry.field(description="The address.")
    created_at: datetime | None = optional("When it was created.")


@strawberry.input(description="Input of `importEmails`.")
class ImportEmailsInput(ImportInput):
    items: list[ImportEmailInput] = strawberry.field(description="The email addresses; 1 to 100.")


@mutation(**RESULTS, description="Imports email addresses. Administrators only, while the import runs.")
async def import_emails(info: Info, input: ImportEmailsInput) -> list[ItemResult]:
    return await write_inputs(info, EMAILS, input.import_id, input.items)


@strawberry.input(description="An SSH key of a user.")
class ImportSshKeyInput:
    source_id: strawberry.ID = source_id()
    user_id: strawberry.ID = strawberry.field(description="The source's ID of the user.")
    title: str = strawberry.field(description="Title.")
    key: str = strawberry.field(description="Public key in one line.")
    created_at: datetime = strawberry.field(description="When it was created.")
    updated_at: datetime | None = optional("When it was last changed.")


@strawberry.input(description="Input of `importSshKeys`.")
class ImportSshKeysInput(ImportInput):
    items: list[ImportSshKeyInput] = strawberry.field(description="The SSH keys; 1 to 100.")


@mutation(**RESULTS, description="Imports SSH keys. Administrators only, while the import runs.")
async def import_ssh_keys(info: Info, input: ImportSshKeysInput) -> list[ItemResult]:
    return await write_inputs(info, SSH_KEYS, input.import_id, input.items)


@strawberry.input(description="A group of the source.")
class ImportGroupInput:
    source_id: strawberry.ID = source_id()
    name: str = strawberry.field(description="Name.")
    path: str = strawberry.field(description="Path; unique among users and groups, ignoring case.")
    description: str | None = optional("Description; at most 255 characters.")
    created_at: datetime | None = optional("When it was created.")
    updated_at: datetime | None = optional("When it was last changed.")
    merge_into: str | None = optional("Path of the group of this instance that it is; it stays as it is.")


@strawberry.input(description="Input of `importGroups`.")
class ImportGroupsInput(ImportInput):
    items: list[ImportGroupInput] = strawberry.field(description="The groups; 1 to 100.")


@mutation(
    **RESULTS,
    description="Imports groups. Their members are imported separately; the administrator becomes none. Administrators only,"
    " while the import runs.",
)
async def import_groups(info: Info, input: ImportGroupsInput) -> list[ItemResult]:
    return await write_inputs(info, GROUPS, input.import_id, input.items)


@strawberry.input(description="A member of a group.")
class ImportGroupMemberInput:
    source_id: strawberry.ID | None = optional("ID in the source, if it has one; with kept IDs that of the row.")
    group_id: strawberry.ID = strawberry.field(description="The source's ID of the group.")
    user_id: strawberry.ID = strawberry.field(description="The source's ID of the user.")
    access_level: AccessLevel = strawberry.field(description="Access level.")  # type: ignore[valid-type]
    created_at: datetime | None = optional("When it was created.")
    updated_at: datetime | None = optional("When it was last changed.")


@strawberry.input(description="Input of `importGroupMembers`.")
class ImportGroupMembersInput(ImportInput):
    items: list[ImportGroupMemberInput] = strawberry.field(description="The members of groups; 1 to 100.")


@mutation(**RESULTS, description="Imports members of groups. Administrators only, while the import runs.")
async def import_group_members(info: Info, input: ImportGroupMembersInput) -> list[ItemResult]:
    return await write_inputs(info, GROUP_MEMBERS, input.import_id, input.items)


@strawberry.type
class ImportAccountMutations:
    import_emails = import_emails
    import_ssh_keys = import_ssh_keys
    import_groups = import_groups
    import_group_members = import_group_members
