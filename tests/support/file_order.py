"""The order in which the processes of the suite take the files of tests: at each time some that wait beside others that compute.

Files that wait spend most of their time on timers, deadlines and the starts of processes. Together, they would leave the cores idle; at the
end, one process would be left alone with them.
"""

from collections.abc import Iterator, Mapping

WAITING_FILES = {
    "tests/forgefront/commands/test_dump_buckets.py": 60,
    "tests/forgefront/server/test_server.py": 43,
    "tests/forgefront/importing/test_instances.py": 38,
    "tests/forgefront/runner/test_runner.py": 35,
    "tests/forgefront/commands/test_check.py": 35,
    "tests/forgefront/hosts/test_hosts.py": 34,
    "tests/test_benchmarks.py": 28,
    "tests/storage/git/test_repository_cache.py": 27,
    "tests/forgefront/importing/test_hostile_sources.py": 26,
    "tests/reliability/test_imports.py": 22,
    "tests/forgefront/client/test_restarts.py": 18,
    "tests/forgefront/hosts/test_rolling_upgrades.py": 18,
    "tests/graph/runners/test_build_claims.py": 16,
    "tests/forgefront/importing/test_v4.py": 15,
    "tests/reliability/test_dumps.py": 14,
    "tests/forgefront/commands/test_serve.py": 13,
    "tests/forgefront/shadow/test_shadow_command.py": 10,
    "tests/forgefront/server/test_streams.py": 9,
    "tests/storage/objects/test_artifacts.py": 7,
    "tests/forgefront/endpoints/test_artifact_endpoints.py": 7,
    "tests/forgefront/importing/test_ssh_sources.py": 7,
    "tests/forgefront/commands/test_import.py": 6,
    "tests/forgefront/server/test_upgrades.py": 6,
    "tests/forgefront/server/test_bucket_owner.py": 5,
    "tests/storage/objects/test_bucket_uploads.py": 5,
    "tests/forgefront/hosts/test_balancers.py": 5,
}
"""Files that wait most of their time, with the seconds that they take beside others."""
MIXED_FILES = {
    "tests/forgefront/git/test_git_http.py": 32,
    "tests/forgefront/pages/test_file_pages.py": 27,
    "tests/forgefront/pages/test_pages.py": 27,
    "tests/forgefront/pages/test_list_pages.py": 25,
    "tests/forgefront/git/test_ssh.py": 22,
    "tests/forgefront/client/test_legacy_client.py": 21,
    "tests/forgefront/pages/test_work_pages.py": 20,
    "tests/forgefront/pages/test_review_pages.py": 17,
    "tests/forgefront/pages/test_repository_pages.py": 17,
    "tests/forgefront/pages/test_settings_pages.py": 16,
    "tests/forgefront/pages/test_dashboard_pages.py": 15,
    "tests/storage/git/protocol/test_hostile_packs.py": 15,
    "tests/forgefront/pages/test_administration_pages.py": 11,
    "tests/forgefront/pages/test_restricted_pages.py": 7,
    "tests/forgefront/pages/test_accessibility.py": 7,
}
"""Files that wait half of their time: those of pages and of git over the network."""
COMPUTING_FILES = {
    "tests/graph/statistics/test_copied_build_stats.py": 24,
    "tests/graph/planner/test_oracle.py": 18,
    "tests/storage/test_migrations.py": 17,
    "tests/graph/operations/test_planted_data.py": 17,
    "tests/test_permissions.py": 17,
    "tests/graph/planner/test_mutation_oracle.py": 14,
    "tests/graph/statistics/test_copied_flaky_builds.py": 13,
    "tests/forgefront/commands/test_cli.py": 12,
    "tests/rest_v3/endpoint/test_hostile.py": 12,
    "tests/graph/operations/test_hostile.py": 12,
    "tests/test_merge_races.py": 10,
    "tests/graph/merge_requests/test_refresh.py": 8,
    "tests/forgefront/commands/test_demo.py": 8,
    "tests/graph/planner/test_dashboards.py": 8,
    "tests/forgefront/commands/test_restore.py": 8,
    "tests/test_races.py": 7,
    "tests/graph/planner/test_plans.py": 7,
    "tests/storage/git/test_diff.py": 6,
    "tests/rest_v3/interface/test_openapi_linters.py": 6,
    "tests/graph/limits/test_loop_lag.py": 6,
}
"""Other files of more than some five seconds."""
SECONDS_PER_TEST = 0.1
"""Of a file that is not listed: it computes."""
LISTED_FILES = {**WAITING_FILES, **MIXED_FILES, **COMPUTING_FILES}
WAITING_UNTIL = 0.85
"""The part of the run after which only files that compute are left: they are many and short, so that all processes end together."""


def order_files(tests_per_file: Mapping[str, int]) -> list[str]:
    """The files in the order in which processes take them: those of each kind are spread over the run, the slowest first."""
    seconds = {file: LISTED_FILES.get(file, tests * SECONDS_PER_TEST) for file, tests in tests_per_file.items()}
    slowest_first = sorted(seconds, key=lambda file: -seconds[file])
    starts = [
        start
        for kind, end in (("waiting", WAITING_UNTIL), ("mixed", WAITING_UNTIL), ("computing", 1.0))
        for start in spread([file for file in slowest_first if kind_of(file) == kind], seconds, end)
    ]
    return [file for _, file in sorted(starts)]


def kind_of(file: str) -> str:
    return "waiting" if file in WAITING_FILES else "mixed" if file in MIXED_FILES else "computing"


def spread(files: list[str], seconds: Mapping[str, float], end: float) -> Iterator[tuple[float, str]]:
    """Each file with the time at which it begins, as a part of the run, if one process takes all of them until `end`."""
    total = sum(seconds[file] for file in files)
    before = 0.0
    for file in files:
        yield before / total * end, file
        before += seconds[file]
