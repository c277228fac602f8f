"""What changes the configuration of this host.

An agent changes what is declared as open to agents, or nothing at all; operators with the scope
admin change everything. The file belongs to the host, so what is asked here is done here.
"""

import asyncio
import hashlib
import os
import sys
from collections.abc import Callable, Sequence

import orjson

from remoteclaw.config import Config
from remoteclaw.config_file import ConfigFile, Plan, Version
from remoteclaw.contract import system as contract
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.gateway.dispatch import Call, Handler
from remoteclaw.gateway.principals import Operator
from remoteclaw.process import read_output
from remoteclaw.setting import Difference

__all__ = ["HANDLERS"]

#: How many changes somebody makes within how long, in milliseconds: a model that goes round in
#: circles is stopped, a person who knows what they want isn't.
MOST_CHANGES, WITHIN_MS = 3, 60_000
#: How many keys a refusal names.
MOST_NAMED = 12
#: How long hooks may take to be imported, in seconds.
IMPORT_S = 20.0
#: Imports hooks as a worker would, in a process of its own: the gateway runs no code of theirs.
_IMPORT = (
    "import sys; sys.path.append('.')\n"
    "from remoteclaw.bridge import Hooks\n"
    "from remoteclaw.config import HooksConfig\n"
    "Hooks.load(HooksConfig.model_validate_json(sys.argv[1]))\n"
)

_Planned = Callable[[ConfigFile, Version], Plan]


async def _patch(call: Call, params: contract.PatchParams) -> contract.Changed:
    def planned(file: ConfigFile, version: Version) -> Plan:
        return file.patched(version, params.patches, _may(call))

    return await _change(call, params.base_hash, planned)


async def _apply(call: Call, params: contract.ApplyParams) -> contract.Changed:
    def planned(file: ConfigFile, version: Version) -> Plan:
        return file.replaced(version, params.config, _may(call))

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
        if call.caller is not None and file.problem(version):
            raise CallRefused(
                "UNAVAILABLE",
                "Nothing was changed: the configuration file has a mistake in it, which a person "
                "has to correct first; `remoteclaw config validate` names it.",
            )
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
        await call.fleet.effects.change(
            call.caller,
            call.id,
            _remembered(plan.before, answer),
            who=_who(call),
            most=MOST_CHANGES,
            within_ms=WITHIN_MS,
            note={"type": "config_changed", "tool": call.method.tool, "changed": plan.paths},
        )
        await file.write(plan)
        return answer


def _may(call: Call) -> Callable[[Sequence[Difference]], None]:
    """Return what refuses a change that the caller may not make, before it is looked at."""

    def may(found: Sequence[Difference]) -> None:
        if call.caller is not None:
            check_for_agents(found)

    return may


def check_for_agents(found: Sequence[Difference]) -> None:
    """Raise `CallRefused`, naming all of it, if something changes that agents may not change.

    What is no setting at all is for the check of the configuration to name.
    """
    closed = [one.name for one in found if one.setting and not one.setting.agents_may]
    if not closed:
        return
    names = list(dict.fromkeys(closed))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    raise CallRefused(
        "FORBIDDEN",
        f"Nothing was changed, because agents may not change {', '.join(names[:MOST_NAMED])}{more}:"
        " a person does, in the file or with `remoteclaw config set`.",
    )


# -- asked again ----------------------------------------------------------------------------------


def _remembered(before: Version, answer: contract.Changed) -> str:
    """Return what is kept of a change, so that asking for it again does nothing again."""
    told = orjson.dumps(answer.model_dump(by_alias=False)).decode()
    return f"{before.hash}\n{told}"


async def _repeated(call: Call, version: Version) -> contract.Changed | None:
    """Return the answer to a call that was answered before; None if it has to be done (still)."""
    made = await call.fleet.effects.made(call.caller, call.id)
    if made is None:
        return None
    base, told = made
    answer = contract.Changed(**orjson.loads(told))
    if answer.status == "needs_confirmation" or version.hash == answer.hash:
        return answer
    if version.hash == base:
        return None  # it was noted, and then this gateway was killed
    raise CallRefused(
        "UNAVAILABLE",
        "This was asked for before, and the configuration file has changed since: look at it "
        "before you repeat it.",
    )


def _who(call: Call) -> str:
    """Return under which name somebody's changes are counted: an agent's in all its sessions."""
    if call.caller is not None:
        return f"agent:{call.caller.session.agent}"
    assert isinstance(call.principal, Operator), "an agent has a session"
    return hashlib.sha256(call.principal.credential.encode()).hexdigest()[:16]


def _check_hooks(config: Config) -> None:
    argv = [sys.executable, "-P", "-c", _IMPORT, config.hooks.model_dump_json()]
    if read_output(argv, env=os.environ, timeout_s=IMPORT_S) is None:
        raise ConfigError(
            "[hooks] can't be imported where the gateway runs: `remoteclaw config set` says why."
        )


HANDLERS: dict[str, Handler] = {
    "config.patch": _patch,
    "config.apply": _apply,
}
