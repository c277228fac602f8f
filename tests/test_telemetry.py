"""The table of events, and the two forms in which processes log them."""

import json
import logging
import re
from datetime import datetime

import pytest

from remoteclaw import telemetry
from remoteclaw.host.logs import FORMATTERS
from remoteclaw.telemetry import BEGINS, ENDS, EVENTS, LogEvent, noting_wait
from tests.support.agents import ROOT
from tests.support.waiting import eventually

LOGGER = logging.getLogger("remoteclaw.test")
END = dict.fromkeys(ENDS.fields) | {
    "reference": "8f3a2b1c-1-0",
    "session": "8f3a2b1c",
    "agent": "main",
    "channel": "telegram",
    "outcome": "failed",
    "seconds": 4.25,
}


def line(record: logging.LogRecord, log_format: str) -> str:
    return FORMATTERS[log_format]().format(record)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.name)
def test_each_event_is_logged_somewhere(event: LogEvent) -> None:
    (name,) = (name for name, value in vars(telemetry).items() if value is event)
    used = re.compile(rf"\b{name}\.log\(")

    assert any(used.search(file.read_text()) for file in (ROOT / "remoteclaw").rglob("*.py"))
    assert re.fullmatch(r"[a-z]+\.[a-z]+", event.name)


def test_an_optional_part_of_a_text_is_left_out_without_its_value(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    ENDS.log(LOGGER, **END)
    ENDS.log(LOGGER, **END | {"category": "auth", "read": 1200, "written": 34})

    short, long = caplog.messages
    assert short == "8f3a2b1c-1-0: ends: main in telegram, failed, 4.2 s"
    assert long == (
        "8f3a2b1c-1-0: ends: main in telegram, failed (auth), 4.2 s, 1200 tokens read, 34 written"
    )


def test_an_event_needs_exactly_its_fields() -> None:
    with pytest.raises(AssertionError, match=r"turn\.begins: \['agent'"):
        BEGINS.log(LOGGER, reference="x")


def test_a_record_is_a_line_of_text_or_json_with_its_time_zone_and_fields(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    ENDS.log(LOGGER, **END | {"agent": "ma\x1b[31m\u202ein\nx"})
    (record,) = caplog.records

    text, packed = line(record, "text"), line(record, "json")

    assert "\n" not in text
    assert text.isprintable()
    assert packed.isascii()
    fields = json.loads(packed)
    assert datetime.fromisoformat(fields["at"]).utcoffset() is not None
    assert text.startswith(f"{fields['at']} INFO remoteclaw.test: 8f3a2b1c-1-0: ends: ")
    assert (fields["level"], fields["event"]) == ("INFO", "turn.ends")
    assert (fields["outcome"], fields["seconds"], fields["category"]) == ("failed", 4.25, None)
    assert fields["agent"] == "ma\x1b[31m\u202ein\nx"


async def test_a_wait_is_logged_once_it_is_long(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    with noting_wait(LOGGER, reference="short", session="s", what="it"):
        pass
    monkeypatch.setattr(telemetry, "LONG_WAIT_S", 0.001)
    with noting_wait(LOGGER, reference="long", session="s", what="a person's answer"):
        await eventually(lambda: bool(caplog.messages))

    assert caplog.messages == ["long: waits for a person's answer"]
