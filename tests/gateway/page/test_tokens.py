"""The page's design tokens."""

import re
from importlib import resources

import pytest

STYLES = {
    file.name: file.read_text()
    for file in (resources.files("remoteclaw.gateway.page") / "static").iterdir()
    if file.name.endswith(".css")
}
GROUNDS = ("paper", "sunken", "raised", "hover", "accent-soft")
#: The grounds of each colour of text.
TEXTS = {
    **dict.fromkeys(("ink", "dim"), (*GROUNDS, "bad-soft", "warn-soft")),
    "accent": GROUNDS,
    "bad": (*GROUNDS, "bad-soft"),
    "warn": (*GROUNDS, "warn-soft"),
    "on-accent": ("accent",),
    "on-bad": ("bad",),
    "on-found": ("found",),
}


def colours(styles: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): #([0-9a-f]{6}|[0-9a-f]{3});", styles))


def luminance(colour: str) -> float:
    whole = colour if len(colour) == 6 else "".join(2 * digit for digit in colour)
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (value / 255 for value in bytes.fromhex(whole))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


LIGHT, _, DARK = STYLES["tokens.css"].partition("@media (prefers-color-scheme: dark)")
SCHEMES = {"light": colours(LIGHT), "dark": {**colours(LIGHT), **colours(DARK)}}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_text_has_a_contrast_of_four_and_a_half_and_each_edge_of_three(scheme: str) -> None:
    found = SCHEMES[scheme]
    code = dict.fromkeys((name for name in found if name.startswith("code-")), GROUNDS[:3])
    assert len(code) == 6

    weak = [
        f"--{front} on --{ground}: {contrast(found[front], found[ground]):.2f}"
        for least, fronts in ((4.5, {**TEXTS, **code}), (3.0, {"edge": GROUNDS}))
        for front, grounds in fronts.items()
        for ground in grounds
        if contrast(found[front], found[ground]) < least
    ]

    assert not weak, f"tokens.css, {scheme}: {weak}"


def test_only_the_tokens_name_colours() -> None:
    """A terminal's screen has a palette of its own: programs assume a dark one."""
    of_terminals = STYLES["terminal.css"].partition("}")[0]
    named = {
        f"{name}: {colour}"
        for name, styles in STYLES.items()
        for colour in re.findall(r"(?:#[0-9a-fA-F]{3,8}\b|rgba?\()[^;]*", styles)
        if name != "tokens.css" and colour not in of_terminals
    }
    assert not named
