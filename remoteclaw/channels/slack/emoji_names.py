"""Slack's names of emoji, such as `thumbsup`, and the emoji themselves."""

#: The emoji of states and answers, so that the library is loaded only for others: it takes 9 MB.
_OWN = dict(
    each.split("=")
    for each in (
        "👀=eyes ⏳=hourglass_flowing_sand ✋=hand ✅=white_check_mark ❌=x 👍=+1 👎=-1 🎉=tada "
        "❤️=heart 🚀=rocket 🙏=pray"
    ).split()
)
_NAMED = {name: emoji for emoji, name in _OWN.items()} | {"thumbsup": "👍", "thumbsdown": "👎"}


def emoji_of(name: str) -> str:
    """Return the emoji of a name; one of a workspace's own stays `:name:`."""
    plain = name.partition("::")[0]  # the colour of a skin follows
    if plain in _NAMED:
        return _NAMED[plain]
    import emoji

    return emoji.emojize(f":{plain}:", language="alias", variant="emoji_type")


def name_of(emoji_: str) -> str:
    """Return the name of an emoji, or of `:name:`."""
    if emoji_ in _OWN:
        return _OWN[emoji_]
    import emoji

    return emoji.demojize(emoji_, language="alias").strip(":")
