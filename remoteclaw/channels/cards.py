"""Requests to people as messages show them: with buttons, or in words where there are none."""

from dataclasses import replace

from remoteclaw.protocols import ChannelAdapter, Reply


def has_buttons(adapter: ChannelAdapter) -> bool:
    """Whether an adapter shows the choices of a card by itself."""
    return bool(getattr(adapter, "has_buttons", False))


def in_words(reply: Reply) -> Reply:
    """Return a reply with the choices of its card as words: they are answered by number.

    Of a request that is answered it says only that: what it was about stands above.
    """
    card = reply.card
    if card is None:
        return reply
    if not card.choices:
        return replace(reply, text=reply.text.rpartition("\n\n")[2])
    numbered = " · ".join(f"{number} {label}" for number, (_, label) in enumerate(card.choices, 1))
    or_why = f", or `/deny {card.id} WHY`" if "once" in dict(card.choices) else ""
    words = f"{numbered}: answer with the number{or_why}."
    return replace(reply, text=f"{reply.text}\n\n{words}")
