"""The profile of the Telegram channel."""

from remoteclaw.protocols import ChannelProfile, Method, Rate

#: Telegram counts messages and edits together (https://github.com/tdlib/td/issues/2592).
_MESSAGES = frozenset[Method](("send", "edit"))

PROFILE = ChannelProfile(
    chunk_limit=4000,  # Telegram allows 4096; the rest leaves room for a line before the text
    chunk_unit="utf16",
    code_file_lines=60,  # two or three screens of a telephone
    max_messages=8,  # half a minute of deliveries, and more than people read on a telephone
    reactions="state",
    formatting=(
        "The user reads in Telegram, mostly on a telephone: short paragraphs, narrow code.",
        "It shows bold, italic, strikethrough, links, quotes, lists and code; a heading is a bold "
        "line, and a table that is wider than 40 characters becomes a list.",
        "Reactions are single emoji of Telegram's own choice, such as 👍 ❤ 🔥 🎉 👀 🤔 👌 🙏.",
        "Effects are fire, thumbs_up, thumbs_down, heart, confetti and poop, in direct chats only.",
    ),
    attachment_mb=20,  # bots may download 20 MB and send 50 MB
    state_emoji={
        "received": "👀",
        "works": "👨‍💻",
        "needs_you": "🙏",
        "done": "👍",
        "failed": "💔",
    },
    live_every_s=1.0,  # Telegram allows about one message or edit per second in a chat
    rates=(  # https://core.telegram.org/bots/faq#my-bot-is-hitting-limits-how-do-i-avoid-this
        Rate(_MESSAGES, 20, per_s=20),  # "one message per second", with short bursts
        Rate(_MESSAGES, 20, per_s=60, scope="group"),
        Rate(_MESSAGES | {"delete", "typing", "react", "pin"}, 30, per_s=1, scope="account"),
    ),
    direct_chat_form=r"\d+",
    id_form=r"-?\d+",
    orders_ids=True,
)
