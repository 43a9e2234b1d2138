"""Validation of documents against the schema, with a limit on the comparisons of fields."""

from typing import Any

from graphql import (
    ASTValidationRule,
    DocumentNode,
    GraphQLError,
    OverlappingFieldsCanBeMergedRule,
    SelectionSetNode,
    ValidationContext,
    specified_rules,
    validate,
)
from graphql.language.visitor import EnterLeaveVisitor
from graphql.validation.validate import ValidationAbortedError

from graph.errors import LimitExceeded
from graph.schema import graphql_schema

MAX_COMPARISON_COST = 60_000
"""Maximum cost of the comparisons of fields with the same response name, in units of graphql-core; a comparison of two fields costs two.

The operations of this repository cost at most 100 units, a chain of 96 fragments 46,000. 60,000 units take some 0.1 seconds.
"""
COMPARISON_COST_MESSAGE = (
    "The document has too many fields with the same response name in selection sets that are merged. Select each field once, "
    "use fewer fragments, or send two requests."
)


class _LimitedOverlappingFieldsRule(OverlappingFieldsCanBeMergedRule):
    """The rule of the specification, which compares fields in pairs, below merged fields and in every operation of the document too."""

    def __init__(self, context: ValidationContext) -> None:
        super().__init__(context)
        self.rule_context.remaining_complexity_budget = MAX_COMPARISON_COST

    def enter_selection_set(self, selection_set: SelectionSetNode, _key: Any, parent: Any, *_args: Any) -> None:
        try:
            super().enter_selection_set(selection_set, _key, parent, *_args)
        except ValidationAbortedError:
            if self.rule_context.remaining_complexity_budget >= 0:
                raise
            # Validation stops at this class of errors only.
            raise ValidationAbortedError(
                COMPARISON_COST_MESSAGE, [selection_set], original_error=LimitExceeded(COMPARISON_COST_MESSAGE)
            ) from None


_NO_METHODS = EnterLeaveVisitor(None, None)


def _skip_other_kinds(rule: type[ASTValidationRule]) -> type[ASTValidationRule]:
    """The rule, which looks for methods of the kinds of nodes that it has methods for.

    graphql-core asks each rule for the methods of each kind again in each document. Most have none for most kinds, and to look for them by
    four names takes half of the time of an ordinary document.
    """
    methods = {name for name in dir(rule) if name.startswith(("enter", "leave"))}
    if methods & {"enter", "leave"}:
        return rule
    kinds = frozenset(name.partition("_")[2] for name in methods)

    def get_enter_leave_for_kind(self: Any, kind: str) -> EnterLeaveVisitor:
        return rule.get_enter_leave_for_kind(self, kind) if kind in kinds else _NO_METHODS

    return type(rule.__name__, (rule,), {"get_enter_leave_for_kind": get_enter_leave_for_kind})


RULES = tuple(
    _skip_other_kinds(_LimitedOverlappingFieldsRule if rule is OverlappingFieldsCanBeMergedRule else rule) for rule in specified_rules
)


def validate_document(document: DocumentNode, *, max_errors: int = 100) -> list[GraphQLError]:
    """Returns the errors of a document; that of an exceeded limit has LimitExceeded as the original error."""
    return validate(graphql_schema, document, RULES, max_errors=max_errors, hide_suggestions=True)
