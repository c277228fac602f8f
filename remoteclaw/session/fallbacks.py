"""Fallbacks: who is asked in place of a session's agent while that can't answer.

A fallback is another model of the same agent, or another agent under the rights of the session's
(docs/decisions/0082-fallbacks.md).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from remoteclaw.bridge import ChannelBridge
from remoteclaw.bridge.failures import as_code
from remoteclaw.clock import local_time, now_ms
from remoteclaw.config.model.agents import ANOTHER_AGENT
from remoteclaw.config.permissions.permissions import PermissionRule
from remoteclaw.errors import ErrorCategory
from remoteclaw.fleet.cooling import Cool, CoolingModels, Failure
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.messages import AgentDeliveryResult, Turn
from remoteclaw.protocols import AgentSpec, Runtime
from remoteclaw.session.retry import MAX_LIMIT_MS

#: The failures of a model after which a fallback is asked.
SWITCHING = frozenset(
    (
        ErrorCategory.USAGE_LIMIT,
        ErrorCategory.RETRYABLE,
        ErrorCategory.UNKNOWN_MODEL,
        ErrorCategory.BILLING,
        ErrorCategory.UNREACHABLE,
    )
)
#: Those that all models of an agent share, so that only another agent is asked.
OF_THE_AGENT = frozenset((ErrorCategory.BILLING, ErrorCategory.UNREACHABLE))
#: What has happened, for people. A full stop or more follows.
_WHY = {
    ErrorCategory.USAGE_LIMIT: "{agent}'s plan is used up{until}",
    ErrorCategory.RETRYABLE: "The model behind {agent} is busy",
    ErrorCategory.UNKNOWN_MODEL: "{agent}'s account can't use {model}",
    ErrorCategory.BILLING: "{agent}'s account has no credit left",
    ErrorCategory.UNREACHABLE: "{agent} can't reach its model",
}
_BY_AGENT = "({why}; {by} answers meanwhile, with notes of this conversation.)"
_BY_MODEL = "({why}; it answers with {by} meanwhile.)"
_BACK = "({agent} answers again, and knows what was said meanwhile.)"
_USUAL_MODEL = "({agent} answers with its usual model again.)"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An agent with a model, from which each turn makes a `Choice`."""

    name: str
    agent: str
    model: str | None
    spec: AgentSpec
    runtime: Runtime
    channel: ChannelBridge


@dataclass(frozen=True, slots=True)
class Choice:
    """An agent with a model that may answer a turn."""

    name: str
    """The fallback, as in the configuration; empty for the session's agent itself."""
    agent: str
    """The agent's name."""
    model: str | None
    """The model, in place of the one in the agent's configuration; None for that one."""
    of: Candidate
    key: str = ""
    """The key by which the fleet knows that the model is left alone."""
    host_key: str = ""
    """The same for this host only, which may be without a network."""

    @property
    def channel(self) -> ChannelBridge:
        """The bridge to the agent."""
        return self.of.channel

    @property
    def asked_model(self) -> str | None:
        """The model that the CLI is asked to use; None for its default."""
        return self.model or self.of.spec.model

    def cool(self, result: AgentDeliveryResult) -> Cool | None:
        """Return for what the model is left alone after a failure; None without keys."""
        category, until_ms = result.error_category, result.retry_at_ms
        if not self.key or category is None:
            return None
        is_known = until_ms is not None and until_ms < now_ms() + MAX_LIMIT_MS
        key = self.host_key if category is ErrorCategory.UNREACHABLE else self.key
        return Cool(key, Failure(category, until_ms if is_known else None))


class Fallbacks:
    """The session's agent and its fallbacks, in the order of the configuration."""

    def __init__(self, lease: Lease, candidates: Sequence[Candidate], host: str) -> None:
        """The first candidate is the session's agent itself."""
        self._lease = lease
        self._candidates = candidates
        self._host = host
        self._cooling = CoolingModels(lease.scripts)
        self._accounts: dict[str, Sequence[str]] = {}
        """What identifies the account of each agent: a CLI's file of it may be long."""

    @property
    def channels(self) -> list[ChannelBridge]:
        """The bridges to the agents."""
        return [*dict.fromkeys(candidate.channel for candidate in self._candidates)]

    async def choices(self, turn: Turn, model: str | None) -> list[tuple[Choice, Failure | None]]:
        """Return who may answer a turn, each with the failure for which it is left alone.

        The first is the session's agent itself, with a `model` in place of its own if one was
        chosen. A command of its CLI has no fallbacks.
        """
        own, *others = self._candidates
        itself = Choice("", own.agent, model, own)
        if turn.is_command or not others:
            return [(itself, None)]
        choices = [itself]
        for other in others:
            choice = Choice(other.name, other.agent, other.model, other)
            if (choice.agent, choice.asked_model) != (itself.agent, itself.asked_model):
                choices.append(choice)
        choices = [await self.with_keys(choice) for choice in choices]
        noted = await self._cooling.read([k for c in choices for k in (c.key, c.host_key)])
        pairs = zip(choices, noted[::2], noted[1::2], strict=True)
        return [(choice, of_account or of_host) for choice, of_account, of_host in pairs]

    async def with_keys(self, choice: Choice) -> Choice:
        """Return a choice with the keys under which its failures are noted."""
        if choice.key:
            return choice
        account = self._accounts.get(choice.agent)
        if account is None:
            account = self._accounts[choice.agent] = await asyncio.to_thread(self._account, choice)
        name, model = choice.of.runtime.name, choice.asked_model
        return replace(
            choice,
            key=await self._cooling.key(name, account, model),
            host_key=await self._cooling.key(name, [*account, self._host], model),
        )

    def _account(self, choice: Choice) -> Sequence[str]:
        """Return what identifies an agent's account; else its program and directories here."""
        runtime, spec = choice.of.runtime, choice.of.spec
        places = runtime.terminal.places(spec.env) if runtime.terminal else {}
        place = [self._host, spec.env.get("HOME", ""), *spec.command, *places.values()]
        return runtime.account(spec.env) or place

    def misfit_of(self, choice: Choice) -> str:
        """Return why a choice can't keep to the rules of the session's agent; empty if it can."""
        own, other = self._candidates[0], choice.of
        return (
            ""
            if own.agent == other.agent
            else misfit(own.spec, own.runtime, other.spec, other.runtime)
        )


def misfit(own: AgentSpec, own_runtime: Runtime, other: AgentSpec, runtime: Runtime) -> str:
    """Return why another agent's CLI can't keep to the rules of the first agent's; empty if it can.

    `other` is the other agent's spec, with the first agent's permissions. Rules without an effect
    for the first agent don't count, and neither does what also its own CLI is allowed elsewhere.
    """
    before, after = own_runtime.capabilities.rules, runtime.capabilities.rules
    # Two programs that speak ACP may be two agents.
    is_same_cli = runtime.name == own_runtime.name and (
        runtime.name != "acp" or other.command == own.command
    )
    if is_same_cli or runtime.name == "demo" or not own.is_limited:
        lost = []
    elif runtime.name == "acp":
        return "an ACP agent decides by itself what it asks for"
    else:
        kinds = {rule: PermissionRule.parse(rule).kind for rule in own.allow}
        lost = [rule for rule, kind in kinds.items() if kind in before and kind not in after]
    if lost:
        return f"{runtime.name} can't keep to {', '.join(lost)} in allow"
    openings = [each for each in runtime.openings(other) if each not in own_runtime.openings(own)]
    return "; ".join(openings)


def switch_notice(
    own: Choice, to: Choice, failure: Failure | None, *, told: str, zone: str | None
) -> str:
    """Return what a chat is told before the answer of `to`, if it was told of the fallback `told`.

    Empty if it knows.
    """
    if to.name == told:
        return ""
    if not to.name:
        is_agent = told.startswith(ANOTHER_AGENT)
        return (_BACK if is_agent else _USUAL_MODEL).format(agent=own.agent)
    why = "{agent} can't answer"
    until = ""
    if failure:
        why = _WHY.get(failure.category, why)
        if failure.until_ms and failure.until_ms > now_ms():
            end, now = local_time(failure.until_ms, zone), local_time(now_ms(), zone)
            form = "%H:%M" if end.date() == now.date() else "%a %d %b, %H:%M %Z"
            until = f" until {end:{form}}"
    text = _BY_MODEL if to.agent == own.agent else _BY_AGENT
    by = to.agent if to.agent != own.agent else as_code(to.name)
    model = f"the model {as_code(own.asked_model)}" if own.asked_model else "its model"
    return text.format(why=why.format(agent=own.agent, until=until, model=model), by=by)
