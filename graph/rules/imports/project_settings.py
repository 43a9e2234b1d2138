"""Imported deploy keys, variables, triggers and protected branches of projects."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from graph.errors import Invalid
from graph.rules import validation
from graph.rules.builds import variables
from graph.rules.imports.batches import Batch
from graph.rules.imports.item_kinds import TIMES, ImportField, ItemKind, UniqueKey, key_of, reference
from graph.rules.imports.user_resources import PUBLIC_KEY_FIELDS, parse_keys, skip_keys_of
from storage import tables
from storage.git.refs.ref_names import is_branch_name
from storage.secrets import digest_token
from storage.tables import ImportKind
from storage.tables.builds import variables as variable_statements

MAX_TOKEN_LENGTH = 255


DEPLOY_KEYS = ItemKind(
    kind=ImportKind.DEPLOY_KEY,
    table=tables.DeployKey,
    fields={"project_id": reference(ImportKind.PROJECT), **PUBLIC_KEY_FIELDS},
    # The source has one key for several projects.
    key=key_of("project_id", "source_id"),
    unique=(UniqueKey(("project_id", "fingerprint"), "key"),),
    may_renumber=True,
    prepare=parse_keys,
    match=skip_keys_of(tables.SshKey),
)


async def _prepare_variables(batch: Batch) -> None:
    for item in batch.open_items:
        item.columns["size"] = len(item.secrets["value"].encode())


async def _match_variables(batch: Batch) -> None:
    """Skip variables that a project would have too many of, or too long ones."""
    project_ids = {item.columns["project_id"] for item in batch.open_items}
    if not project_ids:
        return
    sizes: dict[int, dict[str, int]] = defaultdict(dict)
    for project_id, key, size in await batch.context.tuples(variable_statements.sizes(project_ids)):
        sizes[project_id][key] = size
    for item in batch.open_items:
        used = sizes[item.columns["project_id"]]
        used[item.columns["key"]] = item.columns["size"]
        if len(used) > variables.MAX_VARIABLES:
            item.skip(Invalid("key", f"is one too many (a project can have {variables.MAX_VARIABLES} variables)"))
        elif sum(used.values()) > variables.MAX_TOTAL_BYTES:
            item.skip(Invalid("value", f"is too long (the values of a project can have {variables.MAX_TOTAL_BYTES} bytes together)"))
        if item.outcome is not None:
            del used[item.columns["key"]]


VARIABLES = ItemKind(
    kind=ImportKind.VARIABLE,
    table=tables.Variable,
    fields={
        "project_id": reference(ImportKind.PROJECT),
        "key": ImportField(validate=lambda _, value: variables.validate_key(value), is_required=True),
        "value": ImportField(validate=lambda _, value: variables.validate_value(value), is_required=True, is_sealed=True),
        **TIMES,
    },
    key=key_of("project_id", "key"),
    unique=(UniqueKey(("project_id", "key"), "key"),),
    adopts=True,
    prepare=_prepare_variables,
    match=_match_variables,
)


def _validate_token(field: str, value: str) -> str:
    token = validation.validate_string(field, value, max_length=MAX_TOKEN_LENGTH)
    if not token or not token.isprintable():
        raise Invalid(field, "must be a token")
    return token


async def _prepare_triggers(batch: Batch) -> None:
    for item in batch.open_items:
        item.columns["token_digest"] = digest_token(item.secrets["token"])


def _trigger_key(values: Mapping[str, Any]) -> str:
    return f"{values['project_id']}/{digest_token(values['token'])}"


TRIGGERS = ItemKind(
    kind=ImportKind.TRIGGER,
    table=tables.Trigger,
    fields={
        "project_id": reference(ImportKind.PROJECT),
        "token": ImportField(validate=_validate_token, is_required=True, is_sealed=True),
        "last_used_at": ImportField(),
        **TIMES,
    },
    key=_trigger_key,
    unique=(UniqueKey(("project_id", "token_digest"), "token"), UniqueKey(("token_digest",), "token")),
    adopts=True,
    prepare=_prepare_triggers,
)


def _validate_branch(field: str, value: str) -> str:
    if len(value) > validation.MAX_NAME_LENGTH or not is_branch_name(value):
        raise Invalid(field, "is not a valid branch name")
    return value


PROTECTED_BRANCHES = ItemKind(
    kind=ImportKind.PROTECTED_BRANCH,
    table=tables.ProtectedBranch,
    fields={
        "project_id": reference(ImportKind.PROJECT),
        "name": ImportField(validate=_validate_branch, is_required=True),
        "developers_can_push": ImportField(default=False),
        **TIMES,
    },
    key=key_of("project_id", "name"),
    unique=(UniqueKey(("project_id", "name"), "name"),),
    adopts=True,
)
