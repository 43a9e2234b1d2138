"""Generates the functions of a plan's nodes, when all nodes are built."""

from collections.abc import Iterable

from graph.planner.codegen.object_serializer import compile_serializer
from graph.planner.codegen.row_serializer import compile_object_maker, compile_row_serializer
from graph.planner.codegen.value_serializer import compile_value_serializer
from graph.planner.ir.row_view import RowView
from graph.planner.ir.selection import Selection

GeneratedNode = Selection | RowView


def generate_functions(nodes: Iterable[GeneratedNode]) -> None:
    """Sets the generated functions of these nodes, and of the views below them."""
    for node in nodes:
        if isinstance(node, Selection):
            node.serialize = compile_serializer(node.parts)
            if node.is_value:
                # The nodes of objects below it come before it.
                node.serialize_values = compile_value_serializer(node)
        else:
            _generate_view(node)


def _generate_view(view: RowView) -> None:
    view.serialize = compile_row_serializer(view.parts)
    if view.objects is not None:
        view.objects.make = compile_object_maker(view.objects)
    for _, part in view.relations:
        # The other relations are part of this view's serializer.
        _generate_view(part.view)
        if part.fallback_objects is not None:
            part.fallback_objects.make = compile_object_maker(part.fallback_objects)
