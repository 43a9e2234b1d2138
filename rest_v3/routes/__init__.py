"""ROUTES: the whole interface, in the document's order."""

from rest_v3.route import Route
from rest_v3.routes.artifacts import ARTIFACTS
from rest_v3.routes.branches import BRANCHES
from rest_v3.routes.builds import BUILD_ACTIONS, BUILDS, TRACES
from rest_v3.routes.commits import COMMITS
from rest_v3.routes.deploy_keys import DEPLOY_KEYS
from rest_v3.routes.files import FILES
from rest_v3.routes.groups import GROUPS
from rest_v3.routes.hooks import HOOKS
from rest_v3.routes.issues import ISSUES
from rest_v3.routes.labels import LABELS
from rest_v3.routes.members import MEMBERS
from rest_v3.routes.merge_requests import CANCEL_BY_POST, MERGE_REQUESTS
from rest_v3.routes.milestones import MILESTONES
from rest_v3.routes.namespaces import NAMESPACES
from rest_v3.routes.notes import COMMENTS, NOTES
from rest_v3.routes.project_hooks import PROJECT_HOOKS
from rest_v3.routes.projects import PROJECTS
from rest_v3.routes.repositories import REPOSITORIES
from rest_v3.routes.runners import RUNNERS
from rest_v3.routes.settings import SETTINGS
from rest_v3.routes.snippets import SNIPPETS
from rest_v3.routes.tags import TAGS
from rest_v3.routes.triggers import TRIGGERS
from rest_v3.routes.uploads import UPLOADS
from rest_v3.routes.users import KEY_WITH_USER, SESSION, USERS
from rest_v3.routes.variables import VARIABLES

ROUTES: tuple[Route, ...] = (
    *BUILDS,
    *ARTIFACTS,
    *BUILD_ACTIONS,
    *ISSUES,
    *COMMITS,
    *SETTINGS,
    *HOOKS,
    *LABELS,
    *NOTES,
    *MILESTONES,
    *MERGE_REQUESTS,
    *USERS,
    *GROUPS,
)

EXTRA_ROUTES: tuple[Route, ...] = (
    SESSION,
    *UPLOADS,
    CANCEL_BY_POST,
    *PROJECTS,
    *NAMESPACES,
    *BRANCHES,
    *TAGS,
    *FILES,
    *REPOSITORIES,
    *MEMBERS,
    *SNIPPETS,
    *COMMENTS,
    *PROJECT_HOOKS,
    *DEPLOY_KEYS,
    KEY_WITH_USER,
    *TRACES,
    *RUNNERS,
    *TRIGGERS,
    *VARIABLES,
)
"""Routes that are not in the document."""
