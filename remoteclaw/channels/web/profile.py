"""The profile of the channel of people's chats: on the page, and in terminals."""

from remoteclaw.protocols import ChannelProfile

#: The channel's name.
CHANNEL = "web"
#: The prefixes of people's ids: for a login with the scope admin, and for any other login.
ADMIN, USER = "admin.", "user."

PROFILE = ChannelProfile(
    chunk_limit=200_000,
    reactions="state",
    formatting=("The user reads in a browser or a terminal, which renders Markdown.",),
    live_every_s=0.1,
    has_threads=False,
    person_form=r"(admin|user)\..+",
    lacks=frozenset(("message_thread_reply", "message_pin")),
    owner_prefix=ADMIN,
    orders_ids=True,
    is_local=True,
)


def person_id(name: str, *, is_admin: bool) -> str:
    """Return the id of a logged-in person. Both arguments must come from the person's token."""
    return f"{ADMIN if is_admin else USER}{name}"
