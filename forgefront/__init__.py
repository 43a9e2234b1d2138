"""SERVES. The only package that imports all others; decides nothing."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

SHARED_NAMES = ("storage", "graph")
"""Top-level packages of this distribution whose names other distributions use too."""


def _check_package_names() -> None:
    """Raises ImportError where Python finds, or another distribution has overwritten, a package that this one brings."""
    root = Path(__file__).resolve().parents[1]
    for name in SHARED_NAMES:
        spec = find_spec(name)
        own_file = root / name / "__init__.py"
        found_file = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if found_file != own_file or getattr(import_module(name), "DISTRIBUTION", None) != __name__:
            raise ImportError(
                f"The package {name!r} of Forgefront is hidden by another one of that name:"
                f" {found_file or 'none'} was found, {own_file} is needed. Install Forgefront into an environment of its own"
                " (python3 -m venv DIR; DIR/bin/pip install WHEEL), run it without PYTHONPATH, and from a folder"
                f" without {name}.py or {name}/. If another distribution was installed over it, make the environment again.",
                name=name,
            )


_check_package_names()
