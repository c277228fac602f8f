"""Recorded conversations with real CLIs: they yield the same events as when they were recorded."""

import asyncio
from pathlib import Path

import pytest

from remoteclaw.runtimes import CLIS, create_cli_runtime
from tests.support.agents import MODELS
from tests.support.recording import DIRECTORY, RUN, Replay, conversation, described, spec_of
from tests.support.waiting import HANG_S

RECORDINGS = sorted(DIRECTORY.glob("*.jsonl"))


def test_every_cli_is_recorded() -> None:
    assert [file.name.partition("-")[0] for file in RECORDINGS] == sorted(CLIS)


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.stem)
async def test_a_recorded_conversation_yields_the_same_events(file: Path) -> None:
    name = file.name.partition("-")[0]
    runtime, replay = create_cli_runtime(name), Replay(file)
    async with asyncio.timeout(HANG_S):
        process = await runtime.connect(
            replay,
            spec_of(name, model=MODELS.get(name)),
            session_id=None,
            fork=False,
            parked_state=None,
            run_dir=Path(RUN),
        )
        events = [described(event) async for event in conversation(process)]

    assert events == [replay.event(event) for event in replay.events]


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.stem)
def test_a_recording_contains_no_paths_of_a_machine(file: Path) -> None:
    text = file.read_text()

    assert "/tmp/rc-" not in text
    assert "-tmp-rc-" not in text
    assert "127.0.0.1" not in text
    assert "/root" not in text
