"""Tracks how a result depends on its viewer, so that one result can be sent to all viewers for whom it would be the same.

Everything that depends on the viewer uses `Context.viewer` or a decision of the policy. A tracking context records each decision, and
whether anything else has read the viewer. A result that depends only on decisions is the same for every viewer for whom these decisions are
the same: each step that led to it, and so each further decision, would have been the same.
"""

from typing import Any

from graph.context import Context
from graph.rules.permissions.policy import Action, can
from storage import tables


class TrackingContext(Context):
    """A context that records how a result depends on the viewer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._has_read_viewer = False
        self._decisions: dict[tuple[Action, int], tuple[Action, Any, bool]] = {}
        # The policy uses another context, so that its own reads of the viewer are not recorded.
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
        """Whether the result depends on more than decisions."""
        return self._has_read_viewer or bool(self.files)

    @property
    def policy_context(self) -> Context:
        return self._policy_context

    def record_decision(self, action: str, subject: Any, allowed: bool) -> None:
        """Records a decision of the policy on which the result depends."""
        # A reference to the subject, so that its id is not reused.
        self._decisions[Action(action), id(subject)] = Action(action), subject, allowed

    async def applies_to(self, other: Context) -> bool:
        """Whether the result is the same for the viewer of another context, provided that it is not personal."""
        for action, subject, allowed in self._decisions.values():
            if await can(other, action, subject) is not allowed:
                return False
        return True
