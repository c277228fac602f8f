"""Budgets at the gateway: what is refused at the limit, and the operator's answer."""

import asyncio
import subprocess

import pytest

from remoteclaw.runtimes import RUNTIMES
from tests.support.budgets import DAY, spend
from tests.support.command import run_command
from tests.support.conversations import drain
from tests.support.doors import Refused, gateway_process, opened, own_token
from tests.support.stack import Stack, said
from tests.support.terminal_program import ProgramRuntime


async def test_no_terminal_opens_at_the_limit(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RUNTIMES, "demo", ProgramRuntime)
    stack.configure(budgets=[DAY])
    await spend(stack.fleet, 1000)
    await stack.start_worker()
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        with pytest.raises(Refused, match=r"Today's budget of main is used up until .*00:00"):
            await client.call("terminals.open", {"agent": "main"})
        (request,) = (await client.call("requests.list", {}))["requests"]

    assert (request["kind"], request["state"]) == ("budget", "open")
    assert request["what"] == "main has spent 1,000 of 1,000 tokens today."


async def test_an_operator_answers_at_the_command_line(stack: Stack) -> None:
    """Nobody else can: the channel has no owners, so the chat names the command."""
    stack.configure(budgets=[DAY], channels={"test": {}})
    await spend(stack.fleet, 1000)
    accepted = await stack.append("hello")
    await drain(stack, accepted)

    async def ask(*words: str) -> "subprocess.CompletedProcess[str]":
        return await asyncio.to_thread(run_command, *words, env=stack.env())

    async with gateway_process(stack):
        (request,) = await stack.fleet.requests.waiting()
        listed = await ask("requests", "list")
        assert "main has spent 1,000 of 1,000 tokens today." in listed.stdout
        shown = await ask("sessions", "list")
        assert "postponed" in shown.stdout
        answered = await ask("requests", "answer", request.id, "once")
        assert "Half as much again allowed by" in answered.stdout
        again = await ask("requests", "answer", request.id, "deny")
        assert "It was answered before: Half as much again" in again.stderr
    await stack.start_worker()

    async with stack.swept():
        assert "demo agent" in said(await stack.outcome(accepted))
