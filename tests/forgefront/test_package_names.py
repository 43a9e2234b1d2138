"""A foreign package named `storage` or `graph` is detected at import, with a message that says what to do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forgefront import SHARED_NAMES

ROOT = Path(__file__).parents[2]


def import_forgefront(*paths: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    return subprocess.run(
        [sys.executable, "-c", "import forgefront"], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", SHARED_NAMES)
@pytest.mark.parametrize("file", ["{}.py", "{}/__init__.py"])
def test_a_package_that_comes_first_is_reported(tmp_path: Path, name: str, file: str) -> None:
    foreign = tmp_path / file.format(name)
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("raise SystemExit('the foreign package was run')\n")

    result = import_forgefront(tmp_path, ROOT, folder=tmp_path)

    assert result.returncode == 1
    message = result.stderr.splitlines()[-1]
    assert message.startswith(f"ImportError: The package '{name}' of Forgefront is hidden by another one of that name: {foreign}")
    assert "Install Forgefront into an environment of its own" in message


@pytest.mark.parametrize("name", SHARED_NAMES)
def test_a_package_that_was_overwritten_is_reported(tmp_path: Path, name: str) -> None:
    """As two distributions do that bring the same file into one environment."""
    for package in ("forgefront", *SHARED_NAMES):
        (tmp_path / package).mkdir()
        shutil.copy(ROOT / package / "__init__.py", tmp_path / package)
    assert import_forgefront(tmp_path, folder=tmp_path).returncode == 0

    (tmp_path / name / "__init__.py").write_text('"""Another distribution."""\n')

    assert f"The package '{name}' of Forgefront is hidden" in import_forgefront(tmp_path, folder=tmp_path).stderr


def test_a_folder_without_code_is_no_clash(tmp_path: Path) -> None:
    for name in SHARED_NAMES:
        (tmp_path / name).mkdir()
    assert import_forgefront(tmp_path, ROOT, folder=tmp_path).returncode == 0
