"""Secondary email addresses of users."""

from graph.context import Context
from graph.errors import NotAllowed, NotFound
from graph.rules.accounts import accounts
from storage import tables
from storage.tables.accounts import emails


async def add_email(context: Context, user_id: int, value: str) -> tables.Email:
    """Add an address to a user. Raises Required, Invalid, Taken."""
    address = accounts.validate_email("email", value)
    await accounts.require_available(context, address=address)
    with accounts.translate_unique_violations():
        return await context.add(tables.Email(user_id=user_id, email=address, created_at=context.now(), updated_at=context.now()))


async def delete_email(context: Context, email: tables.Email) -> tables.Email:
    """Delete a secondary address. Raises NotAllowed for the primary one, NotFound when it has been deleted."""
    if email.is_primary:
        raise NotAllowed(None, "The primary address cannot be deleted. Change it with `updateUser`.")
    if await context.value(emails.remove(email.id, email.user_id)) is None:
        raise NotFound("Email")
    context.loaders.clear()
    return email
