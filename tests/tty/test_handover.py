"""A message takes a terminal's turn only from one that is surely at rest."""

from dataclasses import replace

import pytest

from remoteclaw.tty.handover import Standing, decide, is_forgotten, needs_person, waits
from remoteclaw.tty.saved_state import Kept

RESTING = Standing(
    "idle", waiting_for="", who="Ada", viewers=0, idle_s=60, alone_s=60, has_draft=False
)


def test_only_a_terminal_at_rest_is_ended_for_a_message() -> None:
    assert decide(RESTING, handover_s=60) == "park"
    assert decide(replace(RESTING, idle_s=59), handover_s=60) == "soon"
    assert decide(replace(RESTING, alone_s=59), handover_s=60) == "soon"


@pytest.mark.parametrize(
    ("standing", "words"),
    [
        (replace(RESTING, activity="busy"), "(Ada, busy)"),
        (replace(RESTING, activity="unknown"), "(Ada, busy, as far as is known)"),
        (replace(RESTING, activity="waiting"), "(Ada, waiting for a person)"),
        (replace(RESTING, viewers=1), "(Ada, idle)"),
        (replace(RESTING, has_draft=True), "(Ada, with something typed and not sent)"),
    ],
)
def test_otherwise_it_waits_and_who_has_written_is_told_why(standing: Standing, words: str) -> None:
    assert decide(standing, handover_s=0) == "tell"
    assert waits(standing) == f"A terminal is open {words}: your message waits. /take ends it."


def test_a_chat_is_told_what_a_person_has_to_decide() -> None:
    told = needs_person("permission to run `touch x`")
    assert told == "The agent waits for a person in its terminal: permission to run `touch x`."
    assert needs_person("") == "The agent waits for a person in its terminal."


def test_a_gateway_knows_what_the_one_before_knew() -> None:
    kept = Kept(b"\x1b[2J\nRCK1 ", {7501: "state=idle", 0: "a title"}, False, 3, True)

    assert Kept.decode(kept.encode()) == kept
    assert Kept.decode(b"\x1b[2Jold") == Kept(b"\x1b[2Jold")
    assert Kept.decode(kept.encode()[:20]) == Kept()
    assert Kept.decode(b"").has_draft  # nobody knows, so it is not ended


def test_what_nobody_needs_is_ended_and_what_asks_has_more_time() -> None:
    def is_over(**changes: object) -> bool:
        return is_forgotten(replace(RESTING, **changes), idle_s=60, waiting_s=600)  # type: ignore[arg-type]

    assert is_over()
    assert is_over(has_draft=True)
    assert not is_over(viewers=1)
    assert not is_over(idle_s=59)
    for activity in ("waiting", "unknown"):
        assert not is_over(activity=activity, alone_s=599, same_s=900)
        assert not is_over(activity=activity, alone_s=900, same_s=599)
        assert is_over(activity=activity, alone_s=600, same_s=600)
    assert not is_over(activity="busy", alone_s=9999, same_s=9999)
