"""The process that computes large diffs for `storage.git.diffs.diff_workers`: `python -m storage.git.diffs.diff_process`.

Requests come from standard input, answers go to standard output, as messages of `process_messages`. A request is (path of a repository,
id of a commit, id of the older one or None). An answer is (True, entries, each as the tuple of `FileDiff`'s fields) or (False, reason).
The process ends when nothing has come for IDLE_SECONDS, and when its standard input is closed.
"""

import os
import select
import sys
from pathlib import Path

from storage.git.diffs.diff import read_diff
from storage.git.repository import Repository
from storage.git.subprocesses.process_messages import read_message, write_message

NICENESS = 5
IDLE_SECONDS = 30.0


def main() -> None:
    """Answers requests until the input is closed, or none has arrived for IDLE_SECONDS."""
    os.nice(NICENESS)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while select.select([requests], [], [], IDLE_SECONDS)[0]:
        try:
            path, oid, old = read_message(requests)
        except EOFError:
            return
        try:
            found = [tuple(entry) for entry in read_diff(Repository.open(Path(path)), old, oid)]
        except Exception as error:
            # The service reports it; the next request finds the process as it was.
            write_message(answers, (False, str(error) or type(error).__name__))
        else:
            write_message(answers, (True, found))


if __name__ == "__main__":
    main()
