"""Directories, blobs, comparisons, contributors and archives, which are not in the interface document (docs/wire-facts.md 14)."""

from rest_v3.requests.params import choice, directory, text
from rest_v3.reshape import add_keys, oldest_first, sort_by
from rest_v3.route import Route

PROJECT = text("id", required=True)
REVISION = text("sha", required=True, description="The id of a commit, or the name of a branch or tag, with %2F for a slash.")
FILE_PATH = text("filepath", required=True, description="The path of the file from the root of the repository.")
NO_FILE = (404, "404 File Not Found")
TEXT = "text/plain; charset=utf-8"
SECTION = "Repositories"

FORMATS = {
    "tar.gz": "TAR_GZ",
    "tgz": "TAR_GZ",
    "gz": "TAR_GZ",
    "tar": "TAR",
    "tar.bz2": "TAR_BZ2",
    "tbz": "TAR_BZ2",
    "tbz2": "TAR_BZ2",
    "tb2": "TAR_BZ2",
    "bz2": "TAR_BZ2",
    "zip": "ZIP",
}

REPOSITORIES = (
    Route(
        call="GET /projects/:id/repository/tree",
        params=(
            PROJECT,
            text("ref_name", description="A branch, a tag or a commit id; by default the default branch."),
            directory("path", description="The path of the directory; by default the root."),
        ),
        operation="RepositoryTree",
        result_path="project.tree",
        is_unpaged=True,
        has_total=False,
        not_found_noun={"Tree": "Tree"},
        errors={"NOT_FOUND Commit": (404, "404 Tree Not Found")},
        reshape=sort_by("type", "tree", "blob", "commit"),
        shape="TreeEntry",
        section=SECTION,
        summary="List the entries of a directory: directories, then files, then submodules",
    ),
    Route(
        call="GET /projects/:id/repository/blobs/:sha",
        params=(PROJECT, REVISION, FILE_PATH),
        operation="FileOfCommit",
        name="RepositoryBlob",
        result_path="project.blob",
        file_key="stream",
        file_type=TEXT,
        file_disposition="inline",
        guard="CommitSeen",
        not_found_noun={"Blob": "File"},
        section=SECTION,
        summary="Download a file of a commit",
    ),
    Route(
        call="GET /projects/:id/repository/commits/:sha/blob",
        params=(PROJECT, REVISION, FILE_PATH),
        operation="FileOfCommit",
        name="CommitBlob",
        result_path="project.blob",
        file_key="stream",
        file_type=TEXT,
        file_disposition="inline",
        guard="CommitSeen",
        not_found_noun={"Blob": "File"},
        section=SECTION,
        summary="Download a file of a commit, at another address",
    ),
    Route(
        call="GET /projects/:id/repository/raw_blobs/:sha",
        params=(PROJECT, text("sha", required=True, description="The id of a blob.")),
        operation="RawBlob",
        result_path="project.rawBlob",
        file_key="stream",
        not_found_noun={"Blob": "Blob"},
        section=SECTION,
        summary="Download a blob by its id",
    ),
    Route(
        call="GET /projects/:id/repository/archive",
        params=(
            PROJECT,
            text("sha", description="A branch, a tag or a commit id; by default the default branch."),
            choice("format", means=FORMATS, lenient=True, description="The format, or the ending of the path; by default tar.gz."),
        ),
        operation="RepositoryArchive",
        result_path="project.archive",
        file_key="stream",
        extension_parameter="format",
        errors={"NOT_FOUND Commit": NO_FILE},
        section=SECTION,
        summary="Download an archive of the files of a commit",
    ),
    Route(
        call="GET /projects/:id/repository/compare",
        params=(
            PROJECT,
            text("from", required=True, description="The branch, tag or commit id to compare with."),
            text("to", required=True, description="The branch, tag or commit id whose commits and changes are shown."),
        ),
        operation="CompareCommits",
        result_path="project.compare",
        guard="MayReadCode",
        reshape=oldest_first("commits", last="commit"),
        shape="Comparison",
        section=SECTION,
        summary="Compare two commits; of more than 1,000 commits the newest are shown",
    ),
    Route(
        call="GET /projects/:id/repository/contributors",
        params=(PROJECT,),
        operation="Contributors",
        result_path="project.contributors.authors",
        # That server counted none.
        reshape=add_keys(additions=0, deletions=0),
        shape="Contributor",
        section=SECTION,
        summary="List the authors of the default branch, those with most commits first",
    ),
)
