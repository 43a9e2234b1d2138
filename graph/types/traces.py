"""Traces: what builds print."""

from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Context, Info
from graph.mutations import mutation
from graph.rules import artifacts, traces
from graph.rules.policy import Action
from graph.scalars import BigInt
from graph.types.inputs import InProject, find
from storage import tables

if TYPE_CHECKING:
    from graph.types.builds import Build

LINES = 20


@strawberry.type(description="What a build has printed.")
class BuildTrace:
    lines: list[str] = strawberry.field(description="Its last lines, the newest at the end; very long ones are cut.")
    total_bytes: BigInt = strawberry.field(description="How many bytes it has in UTF-8.")


@strawberry.type
class BuildTraces:
    """The part of a build that is about its trace."""

    @strawberry.field(description="What it has printed; null when that was erased, or cannot be read.")
    async def trace(
        self,
        info: Info,
        last: Annotated[int, strawberry.argument(description="How many lines; 20, at most 1000, of the last 256 KiB.")] = LINES,
    ) -> BuildTrace | None:
        build: Any = self
        if build.erased_at is not None:
            return None
        return BuildTrace(lines=await traces.tail(info.context, build, last), total_bytes=BigInt(build.trace_size))


async def find_written(context: Context, input: InProject) -> tables.Build:
    """The build that an input names, for those who may write it. Raises NotFound, Forbidden, Conflict for a runner that has it no more."""
    _, build = await find(context, tables.Build, input, action=Action.READ_BUILD)
    await artifacts.may_write(context, build)
    return build


@strawberry.input(description="What a build has printed since.")
class AppendBuildTraceInput(InProject):
    text: str = strawberry.field(description="The text, at most 1 MiB in UTF-8.")
    offset: BigInt = strawberry.field(
        description="How many bytes (in UTF-8) came before it. What the trace has already is not added again, so a repeat is harmless; "
        "a gap is refused."
    )


@mutation(
    entity="build",
    returns=Annotated["Build", strawberry.lazy("graph.types.builds")],
    entity_description="The build.",
    description="Adds to what a build has printed; developers may. Beyond the instance's limit the trace is cut, with a line that says so. "
    "The token of the build and that of the caller are masked by asterisks; offsets count the bytes that were sent.",
)
async def append_build_trace(info: Info, input: AppendBuildTraceInput) -> Any:
    context = info.context
    # The object is written before this operation's own transaction begins.
    async with context.aside() as early:
        build = await find_written(early, input)
    return await traces.append(context, build, input.text, int(input.offset))


@strawberry.type
class TraceMutations:
    append_build_trace = append_build_trace
