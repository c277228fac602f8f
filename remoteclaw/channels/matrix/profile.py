"""The profile of the Matrix channel."""

from remoteclaw.protocols import ChannelProfile

PROFILE = ChannelProfile(
    chunk_limit=12_000,  # with its HTML, and encrypted, an event stays below 65,536 bytes
    chunk_unit="bytes",
    code_file_lines=60,  # two or three screens of a telephone
    max_messages=8,
    reactions="differences",
    opens_threads=True,
    reads_history=True,
    formatting=(
        "The user reads in a Matrix client such as Element, on a computer or a telephone.",
        "It shows Markdown: headings, bold, italic, strikethrough, links, quotes, lists, tables "
        "and code.",
        "Reactions are any single emoji.",
    ),
    attachment_mb=20,
    state_emoji={
        "received": "👀",
        "works": "⏳",
        "needs_you": "✋",
        "done": "✅",
        "failed": "❌",
    },
    live_every_s=1.0,  # each edit is an event that stays in the room forever
    id_form=r"[@!].+",
    person_form=r"@[^:]+:.+",
)
