"""ROUTES: the whole interface, in the document's order."""

from rest_v3.route import Route

ROUTES: tuple[Route, ...] = ()
