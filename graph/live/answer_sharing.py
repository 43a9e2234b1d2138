"""On what of its viewer an answer hangs: so that one answer serves all for whom it would be the same.

Whatever depends on who asks goes through `Context.viewer`, or through a decision of the policy. A watched context notes each decision,
and that something looked at the viewer beside them. An answer that hangs on nothing but decisions is, word for word, the answer of
everybody for whom these are decided alike: every step that led to it, and so every further decision, would have been the same.
"""

from typing import Any

from graph.context import Context
from graph.rules.policy import Action, can
from storage import tables


class TrackingContext(Context):
    """A context that notes what an answer hangs on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._has_read_viewer = False
        self._decisions: dict[tuple[Action, int], tuple[Action, Any, bool]] = {}
        # By which the policy decides, so that its own looks at the viewer do not count.
        self._policy_context = Context(*args, **kwargs)
        super().__init__(*args, **kwargs)
        self._policy_context.scheduler = self.scheduler

    @property
    def viewer_or_none(self) -> tables.User | None:
        self._has_read_viewer = True
        return self._viewer

    @viewer_or_none.setter
    def viewer_or_none(self, viewer: tables.User | None) -> None:
        self._viewer = viewer

    @property
    def is_personal(self) -> bool:
        """Whether the answer hangs on more than decisions."""
        return self._has_read_viewer or bool(self.files)

    @property
    def policy_context(self) -> Context:
        return self._policy_context

    def record_decision(self, action: str, subject: Any, allowed: bool) -> None:
        # The subject is kept, so no other has its identity meanwhile.
        self._decisions[Action(action), id(subject)] = Action(action), subject, allowed

    async def applies_to(self, other: Context) -> bool:
        """Whether the viewer of another context would have been given the same, unless it is personal."""
        for action, subject, allowed in self._decisions.values():
            if await can(other, action, subject) is not allowed:
                return False
        return True
