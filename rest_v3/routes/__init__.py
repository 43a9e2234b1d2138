"""ROUTES: the whole interface, in the document's order."""

from rest_v3.route import Route
from rest_v3.routes.issues import ISSUES
from rest_v3.routes.notes import NOTES

ROUTES: tuple[Route, ...] = (*ISSUES, *NOTES)
