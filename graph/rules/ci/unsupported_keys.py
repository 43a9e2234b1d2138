"""Keys of later versions that this service does not run, and what to write instead."""

from collections.abc import Mapping

UNSUPPORTED_JOB_KEYS: Mapping[str, str] = {
    "dast_configuration": "Run the scanner in the script.",
    "hooks": "Put the commands into `before_script`.",
    "id_tokens": "Use a secret variable of the project.",
    "identity": "Use a secret variable of the project.",
    "inherit": "Write the keys that the job needs in the job.",
    "interruptible": "Leave it out; builds are not interrupted by newer pushes.",
    "manual_confirmation": "Leave it out.",
    "pages": "Upload the pages in the script.",
    "parallel": "Write one job for each part.",
    "release": "Create the release in the script, by POST /api/v3/projects/ID/repository/tags/TAG/release.",
    "resource_group": "Use a tag that only one runner with `concurrent = 1` has.",
    "run": "Use `script`.",
    "secrets": "Use a secret variable of the project.",
    "start_in": "Use `when: manual`.",
    "timeout": "Leave it out; the instance limits the time of builds (FORGEFRONT_BUILD_TIMEOUT).",
    "trigger": "Call the other project's trigger in the script, by POST /api/v3/projects/ID/trigger/builds.",
}
UNSUPPORTED_GLOBAL_KEYS: Mapping[str, str] = {
    "default": "Write its keys at the top level of the file.",
    "spec": "Write the values into the file.",
    "workflow": "Use `rules` or `only` in the jobs.",
}
