"""Telegram's profile."""

from remoteclaw.protocols import ChannelProfile

PROFILE = ChannelProfile(
    chunk_limit=4000,  # of 4096, which leaves room for a line in front
    chunk_unit="utf16",
    formatting=(
        "The user reads in Telegram, mostly on a telephone: short paragraphs, narrow code.",
        "It shows bold, italic, strikethrough, links, quotes, lists and code; a heading is a bold "
        "line, and a table that is wider than 40 characters becomes a list.",
        "Reactions are single emoji of Telegram's own choice, such as 👍 ❤ 🔥 🎉 👀 🤔 👌 🙏.",
        "Effects are fire, thumbs_up, thumbs_down, heart, confetti and poop, in direct chats only.",
    ),
    attachment_mb=20,  # what bots may fetch; they may send 50
    live_every_s=1.0,  # about one message or edit a second in a chat
    id_form=r"-?\d+",
)
