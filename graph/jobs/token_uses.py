"""Writes when access tokens were last used, in the background, so that no request waits for it.

Each server process writes what it has recorded every WRITE_SECONDS and when it stops, all tokens by one statement. A crash loses at most
the uses of the last WRITE_SECONDS.
"""

import structlog

from graph.context import Services
from graph.operations.transaction import write_transaction
from storage.database.errors import is_unavailable
from storage.tables.accounts import users

WRITE_SECONDS = 60.0

log = structlog.get_logger("maintenance")


async def write_uses(services: Services) -> None:
    """Writes the recorded uses, by one statement per MAX_TOKENS_PER_STATEMENT tokens; none if there are none."""
    uses = services.token_cache.take_uses()
    if not uses:
        return
    try:
        async with write_transaction(services.database) as session:
            pairs = list(uses.items())
            for start in range(0, len(pairs), users.MAX_TOKENS_PER_STATEMENT):
                await session.execute(users.record_uses(dict(pairs[start : start + users.MAX_TOKENS_PER_STATEMENT])))
    except Exception as error:
        if not is_unavailable(error):
            raise
        services.token_cache.return_uses(uses)
        log.warning("uses of tokens could not be written", reason="the database is unavailable")
