"""Uploads: files attached to Markdown."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.declarations import column, to_one
from graph.fields.entities import Node, entity
from graph.fields.mutations import mutation
from graph.fields.scalars import BigInt
from graph.rules.permissions.policy import Action, require
from graph.rules.projects import uploads
from graph.types.accounts.users import User
from graph.types.inputs import ProjectInput, find_project
from storage import tables

if TYPE_CHECKING:
    from graph.types.projects.projects import Project


@entity(
    tables.Upload,
    description="An uploaded file. Everyone who can see the project and knows the URL can download it; as a node, available to its author"
    " and masters of the project.",
    project_key="project_id",
    action=Action.FIND_UPLOAD,
)
class Upload(Node):
    database_id: int = column(tables.Upload.id, description="Database ID; not exposed by v3.")
    project_id: int = column(description="v3 ID of the project.")
    name: str = column(description="File name: letters, digits, `_`, `-`, `+` and `.`.")
    size: BigInt = column(description="Size in bytes.")
    created_at: datetime = column(description="When it was uploaded.")
    author: User = to_one(tables.Upload.author_id, description="User who uploaded it.")
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.Upload.project_id, description="Project it belongs to."
    )

    @strawberry.field(description="Media type of an image, such as `image/png`; `application/octet-stream` for other files.")
    def content_type(self) -> str:
        return uploads.content_type_of(_as_row(self))

    @strawberry.field(description="Whether it is an image that can be displayed inline.")
    def is_image(self) -> bool:
        return uploads.is_image(_as_row(self))

    @strawberry.field(description="Link text.")
    def alt(self) -> str:
        return uploads.alt_text(_as_row(self))

    @strawberry.field(description="Path below the URL of the project: `/uploads/SECRET/NAME`.")
    def url(self) -> str:
        return uploads.upload_path(_as_row(self))

    @strawberry.field(description="Markdown that links to the file, or displays the image.")
    def markdown(self) -> str:
        mark = "!" if uploads.is_image(_as_row(self)) else ""
        return f"{mark}[{uploads.alt_text(_as_row(self))}]({uploads.upload_path(_as_row(self))})"


def _as_row(upload: Any) -> tables.Upload:
    return upload  # type: ignore[no-any-return]


@strawberry.type
class ProjectUploadFields:
    """Fields of a project about its uploads."""

    @strawberry.field(description="Maximum size of an upload in bytes.")
    async def upload_limit(self, info: Info) -> BigInt:
        return BigInt(await uploads.load_max_bytes(info.context))

    @strawberry.field(description="Upload of the project, by the last two segments of its URL.")
    async def upload(
        self,
        info: Info,
        secret: Annotated[str, strawberry.argument(description="Secret in the URL: 32 hexadecimal digits.")],
        name: Annotated[str, strawberry.argument(description="File name.")],
    ) -> Upload | None:
        project: Any = self
        await require(info.context, Action.READ_PROJECT, project)
        return await uploads.get_upload(info.context, project, secret, name)  # type: ignore[return-value]


@strawberry.input(description="A file received by the server through `POST /api/v3/projects/:id/uploads` and not attached yet.")
class ReceivedFile:
    ticket: str = strawberry.field(description="Reference to the received file.")
    name: str = strawberry.field(description="File name sent by the client.")


@strawberry.input(description="Input of `createUpload`.")
class CreateUploadInput(ProjectInput):
    file: ReceivedFile = strawberry.field(description="The received file.")


@mutation(
    entity="upload",
    returns=Upload,
    entity_description="The created upload.",
    description="Attaches a received file to a project. Allowed for everyone who can see the project. Use `markdown` to link to it.",
)
async def create_upload(info: Info, input: CreateUploadInput) -> tables.Upload:
    context = info.context
    project = await find_project(context, input.project_path, Action.CREATE_UPLOAD)
    return await uploads.save_upload(context, project, input.file.ticket, input.file.name)


@strawberry.type
class UploadMutations:
    create_upload = create_upload
