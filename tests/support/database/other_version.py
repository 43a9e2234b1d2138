"""`python -m tests.support.database.other_version REVISIONS COMMAND …` runs a command of a version that has these revisions."""

import sys
from pathlib import Path

from forgefront.cli import main
from storage import migrations

if __name__ == "__main__":
    migrations.VERSIONS = Path(sys.argv.pop(1))
    main()
