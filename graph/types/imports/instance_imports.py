"""The import of an instance: its state, its identities and its marks."""

from datetime import datetime
from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.declarations import column, to_one
from graph.fields.mutations import mutation
from graph.rules.imports import instance_imports
from graph.rules.permissions.policy import Action, require
from graph.types.accounts.users import User
from graph.types.imports.items import ImportInput, ImportKind
from graph.types.inputs import sent_values
from storage import tables

InstanceImportState = strawberry.enum(
    tables.InstanceImportState, name="InstanceImportState", description="State of the import of an instance."
)


@strawberry.type(description="Number of imported items of a kind.")
class ImportCount:
    kind: ImportKind = strawberry.field(description="The kind.")  # type: ignore[valid-type]
    count: int = strawberry.field(description="Number of items.")


@strawberry.type(description="The import of another instance, which can be continued and repeated.")
class InstanceImport:
    database_id: int = column(tables.InstanceImport.id, description="ID of the import: `importId`.")
    source: str = column(description="URL of the source, without credentials.")
    keep_ids: bool = column(tables.InstanceImport.keeps_ids, description="Whether rows have the IDs that they have in the source.")
    state: InstanceImportState = column(description="State of the import.")  # type: ignore[valid-type]
    started_at: datetime = column(description="When it was begun or continued last.")
    finished_at: datetime | None = column(description="When it was finished; null while it runs.")
    user: User | None = to_one(
        tables.InstanceImport.user_id, description="Administrator who began it last; null if the account was deleted."
    )

    @strawberry.field(description="Number of imported items of each kind that has any.")
    async def identity_counts(self, info: Info) -> list[ImportCount]:
        row: Any = self
        found = await instance_imports.count_identities(info.context, row.id)
        return [ImportCount(kind=kind, count=number) for kind, number in sorted(found.items())]


@strawberry.type(description="An imported item and its row.")
class ImportIdentity:
    source_id: str = column(description="ID in the source or, if it has none there, what identifies it.")
    database_id: int = column(description="v3 ID of the row, which may have been deleted.")


@strawberry.type(description="What the importing program records about a list of the source.")
class ImportMark:
    name: str = column(description="Name of the mark.")
    value: str = column(description="Its value.")


ImportIdArgument = Annotated[int, strawberry.argument(description="ID of the import.")]
FirstArgument = Annotated[int, strawberry.argument(description="Maximum number of items; at most 1000.")]


@strawberry.type
class InstanceImportQueries:
    @strawberry.field(description="Imports of other instances, oldest first. Administrators only.")
    async def instance_imports(self, info: Info) -> list[InstanceImport] | None:
        await require(info.context, Action.IMPORT_INSTANCE)
        return await info.context.all(tables.all_rows(tables.InstanceImport))  # type: ignore[arg-type]

    @strawberry.field(
        description="Imported items of a kind, with their old and new IDs, in the order of their IDs in the source as strings."
        " Administrators only."
    )
    async def import_identities(
        self,
        info: Info,
        import_id: ImportIdArgument,
        kind: Annotated[ImportKind, strawberry.argument(description="The kind.")],  # type: ignore[valid-type]
        after_source_id: Annotated[str, strawberry.argument(description="Return items after this `sourceId`.")] = "",
        first: FirstArgument = 1000,
    ) -> list[ImportIdentity] | None:
        await require(info.context, Action.IMPORT_INSTANCE)
        return await instance_imports.load_identities(info.context, import_id, kind, after_source_id, first)  # type: ignore[return-value]

    @strawberry.field(description="Marks of an import in the order of their names. Administrators only.")
    async def import_marks(
        self,
        info: Info,
        import_id: ImportIdArgument,
        after_name: Annotated[str, strawberry.argument(description="Return marks after this name.")] = "",
        first: FirstArgument = 1000,
    ) -> list[ImportMark] | None:
        await require(info.context, Action.IMPORT_INSTANCE)
        return await instance_imports.load_marks(info.context, import_id, after_name, first)  # type: ignore[return-value]


@strawberry.input(description="Input of `beginImport`.")
class BeginImportInput:
    source: str = strawberry.field(description="URL of the instance to import; http or https. Credentials in it are not stored.")
    keep_ids: bool = strawberry.field(
        default=False,
        description="Whether rows keep the IDs of the source. Only into an instance without projects, groups and other users; the same each"
        " time the import is begun.",
    )


@strawberry.input(description="Input of `finishImport`.")
class FinishImportInput(ImportInput):
    pass


@strawberry.input(description="A mark, by which the next run of the importing program reads only what has changed.")
class ImportMarkInput:
    name: str = strawberry.field(description="Name, such as `project/12/issues`; at most 200 characters.")
    value: str = strawberry.field(description="Value, at most 1000 characters; it replaces the one before.")


@strawberry.input(description="Input of `setImportMarks`.")
class SetImportMarksInput(ImportInput):
    items: list[ImportMarkInput] = strawberry.field(description="The marks; 1 to 100.")


@mutation(
    entity="instance_import",
    returns=InstanceImport,
    entity_description="The running import.",
    description="Begins the import of another instance, or continues it: an import is known by its source. Administrators only.",
)
async def begin_import(info: Info, input: BeginImportInput) -> tables.InstanceImport:
    await require(info.context, Action.IMPORT_INSTANCE)
    return await instance_imports.begin_import(info.context, input.source, input.keep_ids)


@mutation(
    entity="instance_import",
    returns=InstanceImport,
    entity_description="The finished import.",
    description="Finishes a running import. The mutations that import items are then refused until it is begun again. Administrators only.",
)
async def finish_import(info: Info, input: FinishImportInput) -> tables.InstanceImport:
    await require(info.context, Action.IMPORT_INSTANCE)
    return await instance_imports.finish_import(info.context, input.import_id)


@mutation(
    entity="instance_import",
    returns=InstanceImport,
    entity_description="The running import.",
    description="Sets marks of a running import. Administrators only.",
)
async def set_import_marks(info: Info, input: SetImportMarksInput) -> tables.InstanceImport:
    running = await instance_imports.lock_for_items(info.context, input.import_id, input.items)
    return await instance_imports.set_marks(info.context, running, [sent_values(each) for each in input.items])


@strawberry.type
class InstanceImportMutations:
    begin_import = begin_import
    finish_import = finish_import
    set_import_marks = set_import_marks
