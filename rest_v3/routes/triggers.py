"""Triggers of a project's builds, which GitLab 8.5 served and the interface document leaves out."""

from rest_v3.requests.params import pairs, text
from rest_v3.reshape import add_keys, pairs_as_object
from rest_v3.route import Route

PROJECT = text("id", required=True)
TOKEN = text("token", required=True, description="Token of the trigger.")
TRIGGER = (PROJECT, TOKEN)
NEVER_DELETED = add_keys(deleted_at=None)
"""GitLab kept deleted triggers for a while; here they are gone."""

TRIGGERS = (
    Route(
        call="POST /projects/:id/trigger/builds",
        params=(
            PROJECT,
            text("ref", required=True, description="Branch or tag."),
            TOKEN,
            pairs("variables", description="Variables for the builds, by their names."),
        ),
        operation="TriggerBuilds",
        result_path="triggerBuilds.triggerRequest",
        reshape=pairs_as_object("variables"),
        errors={"NOT_ALLOWED": (400, "No builds created"), "UNAUTHENTICATED": 401},
        not_found_noun="",
        allows_anonymous=True,
        no_store=True,
        shape="TriggerRequest",
        section="Triggers",
        summary="Have builds of a branch or tag made; the token of a trigger is the credential",
    ),
    Route(
        call="GET /projects/:id/triggers",
        params=(PROJECT,),
        operation="ProjectTriggers",
        result_path="project.triggers",
        reshape=NEVER_DELETED,
        no_store=True,
        shape="Trigger",
        section="Triggers",
        summary="List the triggers of a project",
    ),
    Route(
        call="GET /projects/:id/triggers/:token",
        params=TRIGGER,
        has_secret_path=True,
        operation="ProjectTrigger",
        result_path="project.trigger",
        reshape=NEVER_DELETED,
        not_found_noun="Trigger",
        no_store=True,
        shape="Trigger",
        section="Triggers",
        summary="Get a trigger",
    ),
    Route(
        call="POST /projects/:id/triggers",
        params=(PROJECT,),
        operation="CreateTrigger",
        result_path="createTrigger.trigger",
        reshape=NEVER_DELETED,
        no_store=True,
        shape="Trigger",
        section="Triggers",
        summary="Create a trigger",
    ),
    Route(
        call="DELETE /projects/:id/triggers/:token",
        params=TRIGGER,
        has_secret_path=True,
        operation="DeleteTrigger",
        result_path="deleteTrigger.trigger",
        reshape=NEVER_DELETED,
        not_found_noun="Trigger",
        no_store=True,
        shape="Trigger",
        section="Triggers",
        summary="Delete a trigger",
    ),
)
