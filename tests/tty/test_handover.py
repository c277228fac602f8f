"""The handover: a message ends only a terminal that is certainly idle."""

from dataclasses import replace

import pytest

from remoteclaw.tty.handover import (
    TerminalStatus,
    decide,
    is_abandoned,
    needs_person_notice,
    waiting_notice,
)
from remoteclaw.tty.saved_state import SavedState

IDLE = TerminalStatus(
    "idle", waiting_for="", user="Ada", viewers=0, idle_s=60, unwatched_s=60, has_draft=False
)


def test_only_an_idle_terminal_is_ended_for_a_message() -> None:
    assert decide(IDLE, handover_s=60) == "park"
    assert decide(replace(IDLE, idle_s=59), handover_s=60) == "soon"
    assert decide(replace(IDLE, unwatched_s=59), handover_s=60) == "soon"


@pytest.mark.parametrize(
    ("status", "description"),
    [
        (replace(IDLE, activity="busy"), "(Ada, busy)"),
        (replace(IDLE, activity="unknown"), "(Ada, busy, as far as is known)"),
        (replace(IDLE, activity="waiting"), "(Ada, waiting for a person)"),
        (replace(IDLE, viewers=1), "(Ada, idle)"),
        (replace(IDLE, has_draft=True), "(Ada, with something typed and not sent)"),
    ],
)
def test_otherwise_the_message_waits_and_a_notice_gives_the_reason(
    status: TerminalStatus, description: str
) -> None:
    assert decide(status, handover_s=0) == "notify"
    assert (
        waiting_notice(status)
        == f"A terminal is open {description}: your message waits. /take ends it."
    )


def test_the_notice_in_a_chat_names_the_decision_of_a_person() -> None:
    notice = needs_person_notice("permission to run `touch x`")
    assert notice == "The agent waits for a person in its terminal: permission to run `touch x`."
    assert needs_person_notice("") == "The agent waits for a person in its terminal."


def test_saved_state_is_restored_by_the_next_gateway() -> None:
    kept = SavedState(b"\x1b[2J\nRCK1 ", {7501: "state=idle", 0: "a title"}, False, 3, True)

    assert SavedState.decode(kept.encode()) == kept
    assert SavedState.decode(b"\x1b[2Jold") == SavedState(b"\x1b[2Jold")
    assert SavedState.decode(kept.encode()[:20]) == SavedState()
    assert SavedState.decode(b"").has_draft  # unknown, so the terminal is not ended


def test_an_abandoned_terminal_is_ended_and_a_waiting_one_has_more_time() -> None:
    def is_over(**changes: object) -> bool:
        return is_abandoned(replace(IDLE, **changes), idle_s=60, waiting_s=600)  # type: ignore[arg-type]

    assert is_over()
    assert is_over(has_draft=True)
    assert not is_over(viewers=1)
    assert not is_over(idle_s=59)
    left = {"activity": "unknown", "unwatched_s": 60, "quiet_s": 60, "has_new_process": False}
    assert is_over(**left), "it was left in a menu, or with a draft"
    assert not is_over(**{**left, "quiet_s": 59})
    assert not is_over(**{**left, "has_new_process": True}), "it may be at work"
    for activity in ("waiting", "unknown"):
        assert not is_over(activity=activity, unwatched_s=599, unchanged_s=900)
        assert not is_over(activity=activity, unwatched_s=900, unchanged_s=599)
        assert is_over(activity=activity, unwatched_s=600, unchanged_s=600)
    assert not is_over(activity="busy", unwatched_s=9999, unchanged_s=9999)
