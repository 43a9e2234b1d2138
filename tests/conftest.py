"""The fixtures of the suite live in modules of their own; this names them."""

pytest_plugins = ["tests.databases", "tests.statements", "tests.make", "tests.forge", "tests.world"]
