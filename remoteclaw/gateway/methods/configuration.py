"""What changes the configuration of this host.

An agent changes what is declared as open to agents, or nothing at all; operators with the scope
admin change everything. The file belongs to the host, so what is asked here is done here.
"""

import asyncio
import hashlib
import os
import secrets
import sys
from collections.abc import Callable
from typing import Any

import orjson

from remoteclaw.config import tool_policy
from remoteclaw.config.edit import ConfigFile, Plan, Version
from remoteclaw.config.load import load_config
from remoteclaw.config.model import Config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.config.secrets import part, redacted
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.fleet.confirmations import VALID_MS, PendingChange
from remoteclaw.gateway.approvals import confirm, reject
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.rights import check_allowed, subject_of
from remoteclaw.host.process import read_output
from remoteclaw.tools import configuration as contract
from remoteclaw.tools.base import NoParams

__all__ = ["HANDLERS"]

#: How many changes somebody makes within how long, in milliseconds: a model that goes round in
#: circles is stopped, a person who knows what they want isn't.
MOST_CHANGES, WITHIN_MS = 3, 60_000
#: How long a gateway is not restarted again, in milliseconds.
RESTART_MS = 30_000
#: How long hooks may take to be imported, in seconds.
IMPORT_S = 20.0
#: Imports hooks as a worker would, in a process of its own: the gateway runs no code of theirs.
_IMPORT = (
    "import sys; sys.path.append('.')\n"
    "from remoteclaw.bridge import Hooks\n"
    "from remoteclaw.config.model import HooksConfig\n"
    "Hooks.load(HooksConfig.model_validate_json(sys.argv[1]))\n"
)

_Planned = Callable[[ConfigFile, Version], Plan]


async def _get(call: Call, params: contract.ConfigGetParams) -> contract.ConfigResult:
    version, config = await _read(call)
    shown: Any = redacted(config or call.config)
    if params.key is not None:
        try:
            shown = part(shown, params.key)
        except ConfigError as error:
            raise CallRefused("NOT_FOUND", str(error)) from None
    if config is None:
        return contract.ConfigResult(
            config=shown,
            problem="The configuration file can't be used now, or is gone or empty: this is what "
            "holds nevertheless. A person has to put the file right before it can be changed.",
        )
    return contract.ConfigResult(config=shown, hash=version.hash)


async def _read(call: Call) -> tuple[Version, Config | None]:
    """Return what the file has, and what that means; None if it is not what holds.

    Both are of one reading: a hash of something newer would have that replaced unseen.
    """
    file = ConfigFile(call.home.config_file)
    try:
        version = await asyncio.to_thread(file.read)
    except ConfigError:
        return Version(b""), None
    if _has_lost(call, version.content):
        return version, None
    return version, await asyncio.to_thread(file.usable, version)


def _current(call: Call) -> CurrentConfig | None:
    """Return what knows whether the file is what holds, after a look at it; None in a test."""
    if not isinstance(call.now, CurrentConfig):
        return None
    call.now()
    return call.now


def _has_lost(call: Call, content: bytes) -> bool:
    """Whether the file, which has this content, was there before and can't be used now."""
    current = _current(call)
    if current is None:
        return False
    return current.problem is not None or (current.had_content and not content)


async def _schema(call: Call, params: NoParams) -> contract.SchemaResult:
    return contract.SchemaResult(schema_=Config.model_json_schema())


async def _patch(call: Call, params: contract.PatchParams) -> contract.Changed:
    def planned(file: ConfigFile, version: Version) -> Plan:
        return file.patched(version, params.patches, for_agent=call.caller is not None)

    return await _change(call, params.base_hash, planned)


async def _apply(call: Call, params: contract.ApplyParams) -> contract.Changed:
    def planned(file: ConfigFile, version: Version) -> Plan:
        return file.replaced(version, params.config, for_agent=call.caller is not None)

    return await _change(call, params.base_hash, planned)


async def _change(call: Call, base_hash: str | None, planned: _Planned) -> contract.Changed:
    file = ConfigFile(call.home.config_file, check=_check_hooks)
    async with file.locked():
        version = file.read()
        if answer := await _repeated(call, version):
            return answer
        if base_hash not in (None, version.hash):
            raise CallRefused(
                "INVALID_REQUEST",
                "Nothing was changed: the configuration file is not any more what this was made "
                "for. Read it again with gateway_config_get, and use its new hash.",
            )
        rule = None
        if call.caller is not None:
            config = _usable(call, file, version)
            # It may have waited for the lock while somebody changed who may do what.
            check_allowed(config, call.caller, call.tool)
            rule = _rule(call, config)
        # A large file takes a second to be read with all its comments.
        plan = await asyncio.to_thread(planned, file, version)
        if not plan.paths:
            return contract.Changed(status="unchanged", hash=version.hash)
        answer = contract.Changed(
            status="applied",
            hash=plan.after.hash,
            changed=plan.paths,
            needs_restart=plan.needs_restart,
            overridden_by=file.overriding(plan),
        )
        waits = await _waiting(call, plan) if rule else None
        if waits:
            answer = _asks(answer, version, waits, rule)
        note = {"type": "config_asked" if waits else "config_changed", "changed": plan.paths}
        await call.fleet.effects.change(
            call.caller,
            call.id,
            answer.model_dump_json(by_alias=False),
            who=_who(call),
            most=MOST_CHANGES,
            within_ms=WITHIN_MS,
            note={**note, "tool": call.method.tool},
            pending=(waits.id, waits.encode(), VALID_MS) if waits else None,
        )
        if not waits:
            await file.write(plan)
        return answer


def _usable(call: Call, file: ConfigFile, version: Version) -> Config:
    """Return what a version means, for an agent that would change it; raises `CallRefused`."""
    config = file.usable(version)
    if config is None:
        raise CallRefused(
            "UNAVAILABLE",
            "Nothing was changed: the configuration file has a mistake in it, which a person "
            "has to correct first; `remoteclaw config validate` names it.",
        )
    if _has_lost(call, version.content):
        # What it forbids holds on, and must not be lost with what an agent adds to nothing.
        raise CallRefused(
            "UNAVAILABLE",
            "Nothing was changed: the configuration file is gone or empty, or can't be used. "
            "Try again in a moment; if it stays so, a person has to put it back.",
        )
    return config


async def _restart(call: Call, params: NoParams) -> contract.Restarted:
    assert call.restart is not None, "only a gateway has this method"
    host = call.home.host_id
    answer = contract.Restarted(
        status="restarting",
        detail=(
            f"The gateway of {host} starts anew in a moment, and nothing else: workers, agents and "
            "their turns go on, and who asks it meanwhile waits."
        ),
    )
    async with call.restart.asking:
        was_asked = await call.fleet.effects.made(call.caller, call.id)
        if not was_asked and not call.restart.wanted.is_set():
            _check_start(call)
            note = {"type": "gateway_restarted", "tool": call.method.tool}
            await call.fleet.effects.change(
                call.caller,
                call.id,
                "restarting",
                who=f"restart:{host}",
                most=1,
                within_ms=RESTART_MS,
                note=note,
            )
            call.restart.wanted.set()
    return answer


def _check_start(call: Call) -> None:
    """Refuse to end a gateway that could not start again."""
    try:
        config = load_config(call.home.config_file)
        is_away = _has_lost(call, ConfigFile(call.home.config_file).read().content)
    except ConfigError:
        raise CallRefused(
            "UNAVAILABLE",
            "The gateway is not restarted, because it would not come back: the configuration file "
            "has a mistake in it; `remoteclaw config validate` names it.",
        ) from None
    if is_away:
        raise CallRefused(
            "UNAVAILABLE",
            "The gateway is not restarted, because it would come back without its configuration: "
            "the file is gone or empty. Try again in a moment; if it stays so, put it back.",
        )
    if (current := _current(call)) and config.redis != current.at_start.redis:
        raise CallRefused(
            "UNAVAILABLE",
            "The gateway is not restarted, because it would look at another Redis than all the "
            "rest: [redis] has changed, for which everything has to be started anew.",
        )


# -- confirmed first ------------------------------------------------------------------------------


def _rule(call: Call, config: Config) -> str | None:
    """Return the rule by which a person has to confirm an agent's call."""
    assert call.caller is not None, "operators are persons"
    return tool_policy.confirmed_by(config, subject_of(call.caller), call.tool)


async def _waiting(call: Call, plan: Plan) -> PendingChange:
    """Return a change as it waits to be confirmed."""
    assert call.caller is not None, "operators are persons"
    now = await call.fleet.confirmations.now_ms()
    people = {entry.message.from_ for entry in call.turn.entries if entry.origin == "chat"}
    return PendingChange(
        id=secrets.token_hex(6),  # by chance, so that no agent can have another one's
        host=call.home.host_id,
        tool=call.tool.tool,
        patch=plan.patch,
        base=plan.before.hash,
        after=plan.after.hash,
        changed=plan.paths,
        needs_restart=plan.needs_restart,
        session=str(call.caller.session),
        senders=sorted(people),
        asked_ms=now,
        expires_ms=now + VALID_MS,
    )


def _asks(
    answer: contract.Changed, version: Version, waits: PendingChange, rule: str | None
) -> contract.Changed:
    more = {
        "status": "needs_confirmation",
        "hash": version.hash,
        "confirmation_id": waits.id,
        "detail": (
            f"Nothing was changed yet: a person has to confirm it within an hour ({rule}), "
            f"with `remoteclaw config confirm {waits.id}` on {waits.host}."
        ),
    }
    return answer.model_copy(update=more)


async def _pending(call: Call, params: NoParams) -> contract.PendingResult:
    return contract.PendingResult(
        changes=tuple(
            contract.PendingChange(
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
            for one in await call.fleet.confirmations.list()
        )
    )


async def _confirm(call: Call, params: contract.ChangeParams) -> contract.Changed:
    change = await confirm(call.fleet, call.home, params.id, by=call.operator.name)
    return contract.Changed(
        status="applied",
        hash=change.after,
        changed=tuple(change.changed),
        needs_restart=tuple(change.needs_restart),
    )


async def _reject(call: Call, params: contract.ChangeParams) -> contract.Rejected:
    await reject(call.fleet, call.home, params.id, by=call.operator.name)
    return contract.Rejected(status="rejected")


async def _repeated(call: Call, version: Version) -> contract.Changed | None:
    """Return the answer to a call that was answered before; None if it has to be done (again)."""
    made = await call.fleet.effects.made(call.caller, call.id)
    if made is None:
        return None
    answer = contract.Changed(**orjson.loads(made[0]))
    is_done = answer.status == "needs_confirmation" or answer.hash == version.hash
    return answer if is_done else None  # killed before it was written, or undone since


def _who(call: Call) -> str:
    """Return under which name somebody's changes are counted: an agent's in all its sessions."""
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
    "gateway.restart": _restart,
    "config.patch": _patch,
    "config.apply": _apply,
    "config.pending": _pending,
    "config.confirm": _confirm,
    "config.reject": _reject,
}
