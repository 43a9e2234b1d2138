"""Subscribed operations, which streams with the same selection and variables share."""

from dataclasses import dataclass
from typing import Any

import orjson
from graphql import FieldNode, FragmentDefinitionNode, OperationDefinitionNode, VariableNode, Visitor, visit

from graph.documents.documents import PreparedOperation


@dataclass(frozen=True, slots=True, weakref_slot=True)
class SubscribedOperation:
    """A subscribed operation. Equal ones have equal results; `variables_key` serializes the variables that results depend on."""

    prepared: PreparedOperation
    variables: dict[str, Any]
    variables_key: bytes

    @classmethod
    def of(cls, prepared: PreparedOperation, variables: dict[str, Any]) -> "SubscribedOperation":
        return cls(prepared, variables, _serialize_relevant_variables(prepared, variables))

    @property
    def key(self) -> tuple[int, bytes]:
        return id(self.prepared), self.variables_key


class _VariableCollector(Visitor):
    """Collects the names of the variables in the visited nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def enter_variable(self, node: VariableNode, *_: Any) -> None:
        self.names.add(node.name.value)


def _serialize_relevant_variables(prepared: PreparedOperation, variables: dict[str, Any]) -> bytes:
    """Serializes the variables that results depend on: all except those that only the root field's arguments use (`afterSeq`)."""
    collector = _VariableCollector()
    for node in prepared.document.definitions:
        if isinstance(node, FragmentDefinitionNode):
            visit(node, collector)
        elif isinstance(node, OperationDefinitionNode):
            if prepared.root_field is None:
                return _serialize_variables(variables)
            root = node.selection_set.selections[0]
            if isinstance(root, FieldNode) and root.selection_set is not None:
                visit(root.selection_set, collector)
    return _serialize_variables({name: value for name, value in variables.items() if name in collector.names})


def _serialize_variables(variables: dict[str, Any]) -> bytes:
    return orjson.dumps(variables, option=orjson.OPT_SORT_KEYS)
