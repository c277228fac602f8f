"""Handlers of this host's configuration: reading it, changing it, restarting the gateway.

An agent may change only settings that are declared as open to agents. Operators with the scope
admin may change everything.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson

from remoteclaw.bridge.permission_text import shortened
from remoteclaw.bridge.scrubber import Scrubber, secrets_of
from remoteclaw.bridge.visible import Renderer
from remoteclaw.config.edit import ConfigFile, FileContent, PlannedChange
from remoteclaw.config.merge_patch import check_json
from remoteclaw.config.model import Config
from remoteclaw.config.requests import can_be_asked, request_settings
from remoteclaw.config.secrets import part, redacted, without_dotted_keys
from remoteclaw.config.tool_policy import approval_rule
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.fleet.requests.card import (
    ShownCard,
    file_note,
    make_card,
    other_chat_note,
    request_args,
    with_file,
)
from remoteclaw.fleet.requests.request import Change, Request, new_id
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.rights import subject_of_caller
from remoteclaw.host.terminal import fenced
from remoteclaw.messages import people_of
from remoteclaw.tools import config as contract
from remoteclaw.tools.base import NoParams

REQUESTED = (
    "Nothing was changed yet: a person has to allow it within an hour ({rule}). {where} Go on "
    "without waiting for it: you are told what becomes of it."
)
IN_CHAT = "They are asked in the chat."
AT_HOST = "An operator does, with `remoteclaw requests answer {id} once` on {host}."

_Planner = Callable[[ConfigFile, FileContent], PlannedChange]
CARD = "**{agent}**{about} asks to change the configuration:\n\n{block}"
CARD_RESTART = "\n\nIt would take effect after a restart: {needs}."


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
    """Return the file's content and its configuration; None for the latter if it is not in effect.

    Both come from one read of the file. With the hash of newer content, a change could overwrite
    content that the caller has not seen.
    """
    file = ConfigFile(call.home.config_file)
    try:
        content = await asyncio.to_thread(file.read)
    except ConfigError:
        return FileContent(b""), None
    return content, await _config_in_effect(call, file, content)


async def _config_in_effect(call: Call, file: ConfigFile, content: FileContent) -> Config | None:
    """Return the configuration in the file; None if another one is in effect.

    That is the case while the file has a mistake, or is empty or missing because an editor saves
    it. The last valid configuration then stays in effect, so that its restrictions hold.
    """
    if call.watched_config and call.watched_config.problem:
        return None
    return await asyncio.to_thread(file.config_or_none, content)


async def _schema(call: Call, params: NoParams) -> contract.SchemaResult:
    return contract.SchemaResult(schema_=_shortened(Config.model_json_schema()))


def _shortened(schema: Any) -> Any:
    """Return a schema without what says nothing: claude shows an agent no more than 50 KB.

    These are titles, which repeat names, and that a setting needs no restart.
    """
    if isinstance(schema, list):
        return [_shortened(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _shortened(value)
        for name, value in schema.items()
        if not (name == "title" and isinstance(value, str))
        and not (name == "needsRestart" and value is None)
    }


async def _patch(call: Call, params: contract.PatchParams) -> contract.ConfigChanged:
    check_json(params.patches)
    patch = without_dotted_keys(params.patches, redacted(call.config))

    def plan_change(file: ConfigFile, content: FileContent) -> PlannedChange:
        return file.plan_patch(content, patch, for_agent=call.caller is not None)

    return await _apply_change(call, params.base_hash, plan_change)


async def _apply(call: Call, params: contract.ApplyParams) -> contract.ConfigChanged:
    def plan_change(file: ConfigFile, content: FileContent) -> PlannedChange:
        return file.plan_replacement(content, params.config, for_agent=call.caller is not None)

    return await _apply_change(call, params.base_hash, plan_change)


async def _apply_change(
    call: Call, base_hash: str | None, plan_change: _Planner
) -> contract.ConfigChanged:
    file = ConfigFile(call.home.config_file)
    async with file.locked():
        content = file.read()
        if earlier := await call.fleet.calls.result_of(call.caller, call.id):
            answer = contract.ConfigChanged(**orjson.loads(earlier["result"]))
            # Otherwise a gateway was killed before it wrote the file: write it now.
            if answer.status == "requested" or answer.hash == content.hash:
                return answer
        if base_hash not in (None, content.hash):
            raise CallRefused(
                "INVALID_REQUEST",
                "Nothing was changed: the configuration file has changed since its hash was read. "
                "Read it again with gateway_config_get, and use the new hash.",
            )
        rule = None
        if call.caller is not None:
            if await _config_in_effect(call, file, content) is None:
                raise CallRefused(
                    "UNAVAILABLE",
                    "Nothing was changed: the configuration file is gone, empty or has a mistake "
                    "in it, which a person has to correct first; `remoteclaw config validate` "
                    "names it.",
                )
            rule = approval_rule(call.config, subject_of_caller(call.caller), call.tool)
        # A large file takes a second to parse with its comments.
        plan = await asyncio.to_thread(plan_change, file, content)
        if not plan.paths:
            return contract.ConfigChanged(status="unchanged", hash=content.hash)
        answer = contract.ConfigChanged(
            status="applied",
            hash=plan.after.hash,
            changed=plan.paths,
            needs_restart=plan.needs_restart,
            overridden_by=file.overrides_hiding(plan),
        )
        new_request = None
        if rule:
            request = await _request_of(call, plan)
            shown = _card_of(call, request)
            new_request = request_args(request, shown, keep_ms=call.config.record.keep_ms)
            where = IN_CHAT if shown else AT_HOST.format(id=request.id, host=call.home.host_id)
            pending = {
                "status": "requested",
                "hash": content.hash,
                "request_id": request.id,
                "detail": REQUESTED.format(rule=rule, where=where),
            }
            answer = answer.model_copy(update=pending)
        note = {"type": "config_asked" if new_request else "config_changed", "changed": plan.paths}
        await call.fleet.calls.record_change(
            call.caller,
            call.id,
            answer.model_dump_json(by_alias=False),
            effect={**note, "tool": call.method.tool},
            request_args=new_request,
        )
        if not new_request:
            await file.write(plan)
        return answer


async def _restart(call: Call, params: NoParams) -> contract.GatewayRestarting:
    assert call.restart is not None, "only a gateway offers this method"
    if await call.fleet.calls.result_of(call.caller, call.id) is None:
        await _check_start(call)
        note = {"type": "gateway_restarted", "tool": call.method.tool}
        await call.fleet.calls.record_change(call.caller, call.id, "restarting", effect=note)
        call.restart.set()
    return contract.GatewayRestarting(
        status="restarting",
        detail=(
            f"Only the gateway of {call.home.host_id} restarts, in a moment: workers, agents and "
            "their turns continue, and calls wait until it is back."
        ),
    )


async def _check_start(call: Call) -> None:
    """Raise `CallRefused` if the gateway could not start again, or would use another Redis."""
    file = ConfigFile(call.home.config_file)
    config = await _config_in_effect(call, file, file.read())
    if config is None:
        raise CallRefused(
            "UNAVAILABLE",
            "The gateway is not restarted, because it would not come back as it is: the "
            "configuration file is gone, empty or has a mistake in it; `remoteclaw config "
            "validate` names it.",
        )
    if (current := call.watched_config) and config.redis != current.at_start.redis:
        raise CallRefused(
            "UNAVAILABLE",
            "The gateway is not restarted, because it would use another Redis than the rest: "
            "[redis] has changed, which needs a restart of everything.",
        )


async def _request_of(call: Call, plan: PlannedChange) -> Request:
    """Return the request to people for a change that an agent wants."""
    assert call.caller is not None, "operators' changes don't wait"
    entries = call.turn.entries
    change = Change(
        host=call.home.host_id,
        patch=plan.patch,
        base=plan.before.hash,
        after=plan.after.hash,
        changed=plan.paths,
        needs_restart=plan.needs_restart,
    )
    # The values in the diff are JSON.
    shown = shortened(Renderer(Scrubber(secrets_of(call.config))).json_lines(plan.diff))
    request = Request(
        id=new_id(),
        session=call.caller.session,
        turn=call.turn.id,
        tool=call.tool.tool,
        what=shown.text,
        incomplete=shown.incomplete,
        where=call.home.host_id,
        deliver=entries[-1].deliver,
        here=call.turn.place,
        chat=request_settings(call.config, call.caller.session).chat,
        people=people_of(entries),
        change=change,
    )
    store = partial(call.fleet.blobs.put, request.session.sid, chat=request.session)
    return await with_file(request, shown.full_text, store)


def _card_of(call: Call, request: Request) -> ShownCard | None:
    """Return the card that asks people in the chat; None if only operators can answer."""
    assert request.change, "the request is for a change"
    session, entries = request.session, call.turn.entries
    if request.deliver != "channel" or not can_be_asked(call.config, session, request.people):
        return None
    needs = ", ".join(request.change.needs_restart)
    about = other_chat_note(request, entries)
    text = CARD.format(agent=session.agent, about=about, block=fenced(request.what, "diff"))
    text += file_note(request)
    return make_card(
        request,
        attempt=call.turn.attempt,
        text=text + (CARD_RESTART.format(needs=needs) if needs else ""),
    )


HANDLERS: dict[str, Handler] = {
    "config.get": _get,
    "config.schema": _schema,
    "config.patch": _patch,
    "config.apply": _apply,
    "gateway.restart": _restart,
}
