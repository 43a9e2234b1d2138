"""The error of an invalid configuration; apart from `config`, so that light commands do not load the storage."""


class ConfigError(Exception):
    """The configuration is invalid. `problems` has a line for each error, with its source."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
