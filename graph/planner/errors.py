"""How the planner hands an operation to graphql-core: before a run, or during one."""


class Unplannable(Exception):
    """The operation contains something that only graphql-core can execute. The message names it.

    Raised while a plan is compiled.
    """


class PlanBailout(Exception):
    """A run met what only graphql-core reports, such as a null in a non-null position."""
