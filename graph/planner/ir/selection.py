"""The selection of one type: what a plan reads off its objects, and the steps for the rest."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graph.planner.codegen.object_serializer import ObjectSerializer
from graph.planner.ir.steps import BatchedStep, FieldStep, PendingWork, PlanRun, ResolverStep
from graph.planner.run import MAX_UNSLICED_OBJECTS, await_and_complete, begin_level, complete_field, run_to_completion


@dataclass(slots=True)
class BatchStep:
    """A field whose resolver is called once for all objects of a level (`batch=`)."""

    resolver_step: ResolverStep

    @property
    def key(self) -> str:
        return self.resolver_step.key

    async def execute(self, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
        resolver_step = self.resolver_step
        if len(objects) > MAX_UNSLICED_OBJECTS:
            await run.context.scheduler.pause()
        batch_resolver = resolver_step.batch_resolver
        assert batch_resolver is not None  # noqa: S101 - otherwise the resolver is called for each object
        await complete_field(resolver_step, run, answers, list(await batch_resolver(resolver_step.make_info(run), objects)))


@dataclass(slots=True)
class Selection:
    """What is selected of the objects of one type.

    `steps` are evaluated for each object, `batch_steps` for all of them at once.
    """

    serialize: ObjectSerializer
    steps: list[FieldStep]
    batch_steps: list[BatchedStep]
    column_keys: tuple[str, ...] = ()
    """The response keys that `serialize` fills in, for explanations."""

    @property
    def is_async(self) -> bool:
        return bool(self.steps or self.batch_steps)

    def begin(self, run: PlanRun, objects: Sequence[Any], work: PendingWork) -> list[dict[str, Any]]:
        """The answers, which are complete when the work is done."""
        answers = self.serialize(objects)
        if self.is_async:
            begin_level(run, objects, answers, self.steps, self.batch_steps, work)
        return answers

    async def execute(self, run: PlanRun, objects: Sequence[Any]) -> list[dict[str, Any]]:
        if len(self.steps) + len(self.batch_steps) != 1:
            return await run_to_completion(lambda work: self.begin(run, objects, work))
        # Most operations select one field, beside which there is nothing to begin.
        answers = self.serialize(objects)
        if self.batch_steps:
            await self.batch_steps[0].execute(run, objects, answers)
        else:
            step = self.steps[0]
            await await_and_complete(step, run, answers, step.begin(run, objects))
        return answers
