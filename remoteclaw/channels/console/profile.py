"""The console's profile."""

from remoteclaw.protocols import ChannelProfile

PROFILE = ChannelProfile(
    chunk_limit=1_000_000,  # a terminal has no limit, but memory has
    formatting=("The user reads in a terminal, which renders Markdown.",),
    live_every_s=0.03,
    has_threads=False,
    lacks=frozenset(
        (
            "message_thread_reply",
            "message_react",
            "message_delete",
            "message_pin",
            "message_read",
        )
    ),
    is_owners=True,  # who can write there can also write to Redis
    is_local=True,
)
