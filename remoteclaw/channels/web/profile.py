"""The page's profile."""

from remoteclaw.protocols import ChannelProfile

#: How the ids of those begin who have logged in with the scope admin, and of others.
ADMIN, USER = "admin.", "user."

PROFILE = ChannelProfile(
    chunk_limit=200_000,
    formatting=("The user reads in a browser, which renders Markdown.",),
    has_threads=False,
    lacks=frozenset(("message_thread_reply", "message_pin")),
    owner_prefix=ADMIN,
    is_local=True,
)


def person_id(name: str, *, is_admin: bool) -> str:
    """Return the id of who has logged in: their token alone decides it."""
    return f"{ADMIN if is_admin else USER}{name}"
