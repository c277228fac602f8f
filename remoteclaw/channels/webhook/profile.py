"""The profile of the webhook channel."""

from remoteclaw.protocols import ChannelProfile

PROFILE = ChannelProfile(
    chunk_limit=100_000,  # the receiver knows its platform's limits
    reactions="state",
    formatting=("The message goes through another program, which gets Markdown.",),
    lacks=frozenset(("message_react", "message_delete", "message_pin")),
)
