"""Traces: the output of builds."""

from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Context, Info
from graph.fields.mutations import mutation
from graph.fields.scalars import BigInt
from graph.rules.builds import artifacts, trace_files, traces
from graph.rules.permissions.policy import Action
from graph.types.inputs import ProjectResourceInput, find_in_project
from storage import tables

if TYPE_CHECKING:
    from graph.types.builds.builds import Build

DEFAULT_LINES = 20


@strawberry.type(description="Output of a build.")
class BuildTrace:
    lines: list[str] = strawberry.field(description="Last lines, newest last; very long lines are truncated.")
    total_bytes: BigInt = strawberry.field(description="Size in bytes (UTF-8).")
    start_bytes: BigInt = strawberry.field(
        description="Bytes at the beginning that the service wrote, a message about an earlier run; the output of the runner follows."
    )


@strawberry.type
class BuildTraceFields:
    """Fields of a build about its trace."""

    @strawberry.field(description="Output of the build; null if it was erased or is unavailable.")
    async def trace(
        self,
        info: Info,
        last: Annotated[
            int, strawberry.argument(description="Number of lines; default 20, maximum 1000, from the last 256 KiB.")
        ] = DEFAULT_LINES,
    ) -> BuildTrace | None:
        build: Any = self
        if build.erased_at is not None:
            return None
        return BuildTrace(
            lines=await traces.read_tail(info.context, build, last),
            total_bytes=BigInt(build.trace_size),
            start_bytes=BigInt(build.trace_start or 0),
        )

    @strawberry.field(
        description="Internal reference to the whole output, empty if there is none; valid within one operation and grants no access."
    )
    def trace_stream(self, info: Info) -> str:
        return trace_files.offer_trace(info.context, self)  # type: ignore[arg-type]


async def find_writable_build(context: Context, input: ProjectResourceInput) -> tables.Build:
    """The build that an input names, for callers who may write it.

    Raises NotFound, Forbidden, and Conflict for a runner to which it is no longer assigned.
    """
    _, build = await find_in_project(context, tables.Build, input, action=Action.READ_BUILD)
    await artifacts.require_write_access(context, build)
    return build


@strawberry.input(description="Input of `appendBuildTrace`.")
class AppendBuildTraceInput(ProjectResourceInput):
    text: str = strawberry.field(description="Text to append; at most 1 MiB in UTF-8.")
    offset: BigInt = strawberry.field(
        description="Offset in bytes (UTF-8) at which the text starts. Bytes already stored are skipped, so repeating a request is safe; a"
        " gap is rejected."
    )
    replace: bool = strawberry.field(
        default=False, description="Whether the text replaces the output of the runner so far; `offset` is then `startBytes` of the trace."
    )


@mutation(
    entity="build",
    returns=Annotated["Build", strawberry.lazy("graph.types.builds.builds")],
    runner=True,
    entity_description="The build.",
    description="Appends to the trace of a build. Requires the developer role. A trace that exceeds the limit of the instance is"
    " truncated, with a line that reports it. The token of the build and that of the caller are masked with asterisks; offsets"
    " count the bytes as sent.",
)
async def append_build_trace(info: Info, input: AppendBuildTraceInput) -> Any:
    context = info.context
    # The object is written before this operation's own transaction begins.
    async with context.read_only() as reader:
        build = await find_writable_build(reader, input)
    return await traces.append_trace(context, build, input.text, int(input.offset), replace=input.replace)


@strawberry.type
class TraceMutations:
    append_build_trace = append_build_trace
