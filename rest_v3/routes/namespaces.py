"""Namespaces. The interface document has no such section: a route of the server of that time (docs/wire-facts.md 14)."""

from rest_v3.requests.params import text
from rest_v3.route import Route

NAMESPACES = (
    Route(
        call="GET /namespaces",
        params=(text("search"),),
        operation="Namespaces",
        result_path="namespaces",
        shape="Namespace",
        section="Namespaces",
        summary="List the namespaces in which the caller may create projects; all for administrators",
    ),
)
