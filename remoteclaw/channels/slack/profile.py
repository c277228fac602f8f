"""The profile of the Slack channel."""

from remoteclaw.protocols import ChannelProfile, Rate

PROFILE = ChannelProfile(
    chunk_limit=3800,  # an edit takes 4,000 bytes, and a preview becomes the answer by an edit
    chunk_unit="bytes",
    code_file_lines=60,  # two or three screens of a telephone
    max_messages=8,
    formatting=(
        "The user reads in Slack, often in a channel with colleagues.",
        "It shows Markdown: headings, bold, italic, strikethrough, links, quotes, lists, tables "
        "and code.",
        "Reactions are any single emoji that Slack has.",
    ),
    attachment_mb=20,
    live_every_s=2.0,
    rates=(
        Rate(frozenset(("send",)), 1, per_s=1, scope="chat"),
        Rate(frozenset(("edit",)), 50, per_s=60, scope="account"),
        Rate(frozenset(("react",)), 50, per_s=60, scope="account"),
        Rate(frozenset(("delete",)), 50, per_s=60, scope="account"),
        Rate(frozenset(("pin",)), 20, per_s=60, scope="account"),
        Rate(frozenset(("read",)), 50, per_s=60, scope="account"),
    ),
    opens_threads=True,
    reactions="differences",
    private_replies=True,
    reads_history=True,
    state_emoji={
        "received": "👀",
        "works": "⏳",
        "needs_you": "✋",
        "done": "✅",
        "failed": "❌",
    },
    id_form=r"[CDGUW][A-Z0-9]{5,}",
    person_form=r"[UW][A-Z0-9]{5,}",
    container_form=r"T[A-Z0-9]{5,}",
    orders_ids=True,
    cursors_grow=True,
)
