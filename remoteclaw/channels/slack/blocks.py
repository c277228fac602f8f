"""Messages of Slack: Markdown as a block, and a request with its buttons.

Source: https://docs.slack.dev/reference/block-kit
"""

import json
from typing import Any

from remoteclaw.channels.slack.events import WITH_REASON
from remoteclaw.protocols import Card

#: The maximum length of a button's label, in characters.
MAX_LABEL = 75
#: The text beside the blocks, which notifications show.
NOTIFIED = "The agent asks for something."
_STYLES = {"once": "primary", "deny": "danger"}


def message_of(markdown: str, card: Card | None = None) -> dict[str, Any]:
    """Return the arguments of a message. One with a card has blocks, also once it is answered."""
    if card is None:
        return {"markdown_text": markdown}
    blocks: list[dict[str, Any]] = [{"type": "markdown", "text": markdown}]
    if card.choices:
        blocks.append({"type": "actions", "elements": _buttons(card)})
    return {"text": NOTIFIED, "blocks": blocks}


def _buttons(card: Card) -> list[dict[str, Any]]:
    buttons = [_button(verdict, label, card.id) for verdict, label in card.choices]
    if any(verdict == "deny" for verdict, _ in card.choices):
        buttons.append(_button(WITH_REASON, "Deny with a reason …", card.id))
    return buttons


def _button(action: str, label: str, request: str) -> dict[str, Any]:
    shown = label if len(label) <= MAX_LABEL else f"{label[: MAX_LABEL - 1]}…"
    button: dict[str, Any] = {"type": "button", "action_id": action, "value": request}
    button |= {"text": {"type": "plain_text", "text": shown}}
    return button | ({"style": _STYLES[action]} if action in _STYLES else {})


def reason_view(request: str, container: dict[str, Any]) -> dict[str, Any]:
    """Return the view that asks for the reason of a denial."""
    names = ("channel_id", "message_ts", "thread_ts")
    shown = {name: container[name] for name in names if name in container}
    field: dict[str, Any] = {"type": "plain_text_input", "action_id": "reason"}
    field |= {"multiline": True, "max_length": 2000}
    label = {"type": "plain_text", "text": "What should the agent know?"}
    asked = {"type": "input", "block_id": "reason", "label": label, "element": field}
    return {
        "type": "modal",
        "callback_id": WITH_REASON,
        "private_metadata": json.dumps({"request": request, **shown}),
        "title": {"type": "plain_text", "text": "Deny"},
        "submit": {"type": "plain_text", "text": "Deny"},
        "blocks": [asked],
    }
