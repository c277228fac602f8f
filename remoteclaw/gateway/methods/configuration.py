"""Handlers of this host's configuration: reading it, changing it, approving changes.

An agent changes settings that are declared as open to agents, and for others nothing at all;
operators with the scope admin change everything.
"""

import asyncio
import contextlib
import hashlib
import os
import sys
from collections.abc import Callable
from typing import Any

import orjson

from remoteclaw.config.edit import ConfigFile, FileContent, PlannedChange
from remoteclaw.config.model import Config
from remoteclaw.config.secrets import part, redacted
from remoteclaw.config.tool_policy import approval_rule
from remoteclaw.errors import CallRefused, ConfigError, RedisRefused, RedisUnavailable
from remoteclaw.fleet.approvals import VALID_MS, Approval
from remoteclaw.gateway.approvals import approval_of, approve, reject
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.rights import check_allowed, subject_of_caller
from remoteclaw.host.process import read_output
from remoteclaw.tools import configuration as contract
from remoteclaw.tools.base import NoParams

__all__ = ["HANDLERS"]

#: How many changes one agent or token makes within how long, in milliseconds: stops a model that
#: goes round in circles, and no person.
MOST_CHANGES, WITHIN_MS = 3, 60_000
#: How long hooks may take to be imported, in seconds.
IMPORT_S = 20.0
#: Imports hooks as a worker would, in a process of its own: the gateway runs no code of theirs.
_IMPORT = (
    "import sys; sys.path.append('.')\n"
    "from remoteclaw.bridge import Hooks\n"
    "from remoteclaw.config.model import HooksConfig\n"
    "Hooks.load(HooksConfig.model_validate_json(sys.argv[1]))\n"
)

_Planned = Callable[[ConfigFile, FileContent], PlannedChange]


async def _get(call: Call, params: contract.ConfigGetParams) -> contract.ConfigResult:
    content, config = await _read(call)
    shown: Any = redacted(config or call.config)
    if params.key is not None:
        try:
            shown = part(shown, params.key)
        except ConfigError as error:
            raise CallRefused("NOT_FOUND", str(error)) from None
    if config is None:
        return contract.ConfigResult(
            config=shown,
            problem="The configuration file is not valid, or is gone or empty: this is the "
            "configuration in effect. A person has to correct the file before it can be changed.",
        )
    return contract.ConfigResult(config=shown, hash=content.hash)


async def _read(call: Call) -> tuple[FileContent, Config | None]:
    """Return the file's content and its configuration; None instead if another one is in effect.

    Both come from one reading: the hash of newer content would let a change overwrite it unseen.
    """
    file = ConfigFile(call.home.config_file)
    try:
        content = await asyncio.to_thread(file.read)
    except ConfigError:
        return FileContent(b""), None
    if call.watched_config and call.watched_config.problem:
        return content, None
    return content, await asyncio.to_thread(file.config_or_none, content)


async def _schema(call: Call, params: NoParams) -> contract.SchemaResult:
    return contract.SchemaResult(schema_=Config.model_json_schema())


async def _patch(call: Call, params: contract.PatchParams) -> contract.Changed:
    def planned(file: ConfigFile, content: FileContent) -> PlannedChange:
        return file.patched(content, params.patches, for_agent=call.caller is not None)

    return await _change(call, params.base_hash, planned)


async def _apply(call: Call, params: contract.ApplyParams) -> contract.Changed:
    def planned(file: ConfigFile, content: FileContent) -> PlannedChange:
        return file.replaced(content, params.config, for_agent=call.caller is not None)

    return await _change(call, params.base_hash, planned)


async def _change(call: Call, base_hash: str | None, planned: _Planned) -> contract.Changed:
    file = ConfigFile(call.home.config_file, check=_check_hooks)
    async with file.locked():
        content = file.read()
        if answer := await _repeated(call, content):
            return answer
        if base_hash not in (None, content.hash):
            raise CallRefused(
                "INVALID_REQUEST",
                "Nothing was changed: the configuration file has changed since its hash was read. "
                "Read it again with gateway_config_get, and use the new hash.",
            )
        rule = None
        if call.caller is not None:
            config = _usable(call, file, content)
            # The policy may have changed while the call waited for the lock.
            check_allowed(config, call.caller, call.tool)
            rule = approval_rule(config, subject_of_caller(call.caller), call.tool)
        # A large file takes a second to parse with its comments.
        plan = await asyncio.to_thread(planned, file, content)
        if not plan.paths:
            return contract.Changed(status="unchanged", hash=content.hash)
        answer = contract.Changed(
            status="applied",
            hash=plan.after.hash,
            changed=plan.paths,
            needs_restart=plan.needs_restart,
            overridden_by=file.overrides_hiding(plan),
        )
        approval = None
        if rule:
            approval = await approval_of(call, plan)
            answer = _needs_approval(answer, content, approval, rule)
        note = {"type": "config_asked" if approval else "config_changed", "changed": plan.paths}
        await call.fleet.calls.change(
            call.caller,
            call.id,
            _remembered(content.hash, answer),
            who=_who(call),
            most=MOST_CHANGES,
            within_ms=WITHIN_MS,
            note={**note, "tool": call.method.tool},
            pending=(approval.id, approval.encode(), VALID_MS) if approval else None,
        )
        if not approval:
            await file.write(plan)
            # Should Redis not hear of it, a repeated call still finds the file as it left it.
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                await call.fleet.calls.remember(call.caller, call.id, _remembered("", answer))
        return answer


def _usable(call: Call, file: ConfigFile, content: FileContent) -> Config:
    """Return the configuration that an agent would change; raises `CallRefused` if it can't."""
    config = file.config_or_none(content)
    if config is None:
        raise CallRefused(
            "UNAVAILABLE",
            "Nothing was changed: the configuration file has a mistake in it, which a person "
            "has to correct first; `remoteclaw config validate` names it.",
        )
    if call.watched_config and call.watched_config.problem:
        # What it forbids is in effect, and must not be lost when an agent adds to an empty file.
        raise CallRefused(
            "UNAVAILABLE",
            "Nothing was changed: the configuration file is gone, empty or not valid. "
            "Try again in a moment; if that stays so, a person has to restore it.",
        )
    return config


def _needs_approval(
    answer: contract.Changed, content: FileContent, approval: Approval, rule: str
) -> contract.Changed:
    """Return the answer about a change that waits for approval: nothing is changed yet."""
    more = {
        "status": "needs_approval",
        "hash": content.hash,
        "approval_id": approval.id,
        "detail": (
            f"Nothing was changed yet: a person has to approve it within an hour ({rule}), "
            f"with `remoteclaw config approve {approval.id}` on {approval.host}."
        ),
    }
    return answer.model_copy(update=more)


async def _approvals(call: Call, params: NoParams) -> contract.ApprovalsResult:
    return contract.ApprovalsResult(
        approvals=tuple(
            contract.Approval(
                id=one.id,
                host=one.host,
                tool=one.tool,
                patch=dict(one.patch),
                changed=tuple(one.changed),
                needs_restart=tuple(one.needs_restart),
                session_key=one.session,
                senders=tuple(one.senders),
                asked_ms=one.asked_ms,
                expires_ms=one.expires_ms,
            )
            for one in await call.fleet.approvals.list()
        )
    )


async def _approve(call: Call, params: contract.ApprovalParams) -> contract.Changed:
    change = await approve(call.fleet, call.home, params.id, by=call.operator.name)
    return contract.Changed(
        status="applied",
        hash=change.after,
        changed=tuple(change.changed),
        needs_restart=tuple(change.needs_restart),
    )


async def _reject(call: Call, params: contract.ApprovalParams) -> contract.Rejected:
    await reject(call.fleet, call.home, params.id, by=call.operator.name)
    return contract.Rejected(status="rejected")


def _remembered(base: str, answer: contract.Changed) -> str:
    """Return what Redis keeps of a change: the hash that the file had before, and the answer.

    The `base` is empty once the change is written.
    """
    return f"{base}\n{answer.model_dump_json(by_alias=False)}"


async def _repeated(call: Call, content: FileContent) -> contract.Changed | None:
    """Return the answer to a call that was answered before; None if it has to be done (again).

    Raises `CallRefused` if the file has changed since.
    """
    made = await call.fleet.calls.made(call.caller, call.id)
    if made is None:
        return None
    base, told = made
    answer = contract.Changed(**orjson.loads(told))
    if answer.status == "needs_approval" or answer.hash == content.hash:
        return answer
    if base == content.hash:
        return None  # the gateway was killed before it was written
    raise CallRefused(
        "UNAVAILABLE",
        "This was asked for before, and the configuration file has changed since: look at it "
        "before you repeat it.",
    )


def _who(call: Call) -> str:
    """Return the name under which changes are counted: an agent's in all its sessions."""
    if call.caller is not None:
        return f"agent:{call.caller.session.agent}"
    return hashlib.sha256(call.operator.credential.encode()).hexdigest()[:16]


def _check_hooks(config: Config) -> None:
    argv = [sys.executable, "-P", "-c", _IMPORT, config.hooks.model_dump_json()]
    if read_output(argv, env=os.environ, timeout_s=IMPORT_S) is None:
        raise ConfigError(
            "[hooks] can't be imported where the gateway runs: `remoteclaw config set` says why."
        )


HANDLERS: dict[str, Handler] = {
    "config.get": _get,
    "config.schema": _schema,
    "config.patch": _patch,
    "config.apply": _apply,
    "config.approvals": _approvals,
    "config.approve": _approve,
    "config.reject": _reject,
}
