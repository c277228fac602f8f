"""The profile of the console channel."""

from remoteclaw.protocols import ChannelProfile

PROFILE = ChannelProfile(
    chunk_limit=1_000_000,  # a terminal has no limit; this one protects memory
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
    is_owners=True,  # anyone who can write to the console can also write to Redis
    is_local=True,
)
