"""What the gateway's methods and tools promise, one row for each.

The table is written by hand and not computed, so that a mistake in a declaration or in the policy
is not repeated here.
"""

from dataclasses import dataclass
from typing import Any

from remoteclaw.tools.base import Method

#: The principals of `Promise.rights`, in their order: scopes of operators, and senders of a turn.
OPERATORS = ("read", "write", "terminal", "admin")
AGENTS = ("owner", "stranger", "limited", "idle")


@dataclass(frozen=True)
class Promise:
    """The promise of one method."""

    tool: str | None
    """Its name as a tool; None if it is no tool."""
    parameters: str
    """The names of its parameters; `?` marks optional ones. Only operators have those after `|`."""
    rights: str
    """The result of a call by an operator with the scope read, write, terminal or admin, and by an
    agent in a turn of the owner, of a stranger, of a person with the profile `limited`, and between
    turns. Y: answered. F: forbidden. T: refused, because no turn is running."""


#: Every method by its name.
PROMISED = {
    name: Promise(*row)
    for name, row in {
        "sessions.search": (
            "sessions_list",
            "filter? limit? | state? channel? agent? usage?",
            "YYYY YYYT",
        ),
        "sessions.history": (
            "sessions_history",
            "sessionKey limit? before? | endedMs?",
            "YYYY YYYT",
        ),
        "sessions.send": ("sessions_send", "sessionKey? label? message timeout?", "FYYY YYFT"),
        "tasks.spawn": ("sessions_spawn", "prompt agentId? channel? knows? label?", "FYYY YYFT"),
        "sessions.show": ("session_status", "sessionKey?", "YYYY YYYT"),
        "agents.list": ("agents_list", "", "YYYY YYYT"),
        "tasks.manage": ("subagents", "action? message? params?", "FYYY YYFT"),
        "tasks.progress": ("session_progress", "progress", "FYYY YYFT"),
        "tasks.tree": (None, "sessionKey", "YYYY FFFF"),
        "message.send": ("message_send", "target message media? threadId?", "FYYY YYFT"),
        "message.reply": ("message_reply", "message replyToId?", "FYYY YYYT"),
        "message.threadReply": ("message_thread_reply", "message threadId", "FYYY YYYT"),
        "message.broadcast": ("message_broadcast", "targets message", "FYYY YYFT"),
        "message.react": ("message_react", "emoji messageId", "FYYY YYYT"),
        "message.delete": ("message_delete", "messageId", "FYYY YYFT"),
        "message.sendAttachment": ("message_send_attachment", "target file caption?", "FYYY YYFT"),
        "message.sendWithEffect": (
            "message_send_with_effect",
            "target message effectId",
            "FYYY YYFT",
        ),
        "message.pin": ("message_pin", "messageId", "FYYY YYFT"),
        "message.read": ("message_read", "channelId? limit?", "YYYY YYYT"),
        "cron.status": ("cron_status", "", "YYYY YFFT"),
        "cron.list": ("cron_list", "filter?", "YYYY YFFT"),
        "cron.add": ("cron_add", "job", "FFFY YFFT"),
        "cron.update": ("cron_update", "jobId updates", "FFFY YFFT"),
        "cron.remove": ("cron_remove", "jobId", "FFFY YFFT"),
        "cron.run": ("cron_run", "jobId force?", "FFFY YFFT"),
        "cron.runs": ("cron_runs", "jobId? limit?", "YYYY YFFT"),
        "cron.show": (None, "name", "YYYY FFFF"),
        "cron.preview": (None, "schedule sessionKey?", "YYYY FFFF"),
        "memory.write": ("memory_write", "text replaces?", "FFFY YFFT"),
        "memory.show": (None, "agent", "FFFY FFFF"),
        "memory.replace": (None, "agent text base", "FFFY FFFF"),
        "memory.undo": (None, "agent", "FFFY FFFF"),
        "tokens.list": (None, "", "FFFY FFFF"),
        "tokens.create": (None, "name scope days? agents?", "FFFY FFFF"),
        "tokens.revoke": (None, "token? jti? jwtUser?", "FFFY FFFF"),
        "pairings.list": (None, "", "FFFY FFFF"),
        "pairings.approve": (None, "code", "FFFY FFFF"),
        "pairings.remove": (None, "id channel?", "FFFY FFFF"),
        "audit.list": (None, "limit?", "FFFY FFFF"),
        "sessions.fork": (None, "sessionKey threadId? user?", "FFFY FFFF"),
        "sessions.export": (None, "sessionKey archived? format?", "YYYY FFFF"),
        "sessions.forget": (None, "sessionKey", "FFFY FFFF"),
        "gateway.restart": ("gateway_restart", "", "FFFY YFFT"),
        "config.get": ("gateway_config_get", "key?", "YYYY YFFT"),
        "config.apply": ("gateway_config_apply", "config baseHash", "FFFY YFFT"),
        "config.patch": ("gateway_config_patch", "patches baseHash?", "FFFY YFFT"),
        "config.schema": ("gateway_config_schema", "", "YYYY YFFT"),
        "requests.list": (None, "all?", "YYYY FFFF"),
        "requests.show": (None, "id", "YYYY FFFF"),
        "requests.answer": (None, "id verdict reason?", "FFFY FFFF"),
        "health": (None, "", "YYYY FFFF"),
        "fleet.status": (None, "", "YYYY FFFF"),
        "hosts.drain": (None, "host?", "FFFY FFFF"),
        "hosts.get": (None, "host?", "FFFY FFFF"),
        "hosts.resume": (None, "host?", "FFFY FFFF"),
        "deadletters.list": (None, "limit?", "YYYY FFFF"),
        "deadletters.show": (None, "id", "YYYY FFFF"),
        "deadletters.retry": (None, "id", "FFFY FFFF"),
        "deadletters.drop": (None, "id", "FFFY FFFF"),
        "doctor": (None, "", "YYYY FFFF"),
        "outcomes.wait": (None, "runId timeout? knowsPause?", "YYYY FFFF"),
        "sessions.stop": (None, "sessionKey", "FYYY FFFF"),
        "sessions.retry": (None, "sessionKey", "FYYY FFFF"),
        "sessions.reset": (None, "sessionKey reason?", "FFFY FFFF"),
        "sessions.subscribe": (None, "sessionKey", "YYYY FFFF"),
        "sessions.unsubscribe": (None, "sessionKey", "YYYY FFFF"),
        "sessions.archive": (None, "sessionKey", "YYYY FFFF"),
        "sessions.trace": (None, "what limit?", "YYYY FFFF"),
        "sessions.label": (None, "sessionKey label?", "FYYY FFFF"),
        "sessions.queue": (
            None,
            "sessionKey mode? debounceMs? cap? drop? gatherMs? gatherMostMs? reset?",
            "FFFY FFFF",
        ),
        "sessions.write": (
            None,
            "message sessionKey? toCaller? channel? from? to? account? threadId? agentId? "
            "messageId? files? isBackground?",
            "FYYY FFFF",
        ),
        "chat.open": (
            None,
            "conversation? agentId? after? sessionKey? sender? follow?",
            "FYYY FFFF",
        ),
        "chat.history": (None, "sessionKey before limit?", "FYYY FFFF"),
        "chat.waiting": (None, "sessionKey", "FYYY FFFF"),
        "chat.files": (None, "sessionKey like? limit?", "FYYY FFFF"),
        "chat.send": (
            None,
            "sessionKey messageId text? replyTo? files? answer? reaction? isBackground? waits?",
            "FYYY FFFF",
        ),
        "push.key": (None, "", "FYYY FFFF"),
        "push.subscribe": (None, "endpoint publicKey auth", "FYYY FFFF"),
        "push.unsubscribe": (None, "", "FYYY FFFF"),
        "push.visible": (None, "isVisible", "FYYY FFFF"),
        "usage": (None, "by? days?", "YYYY FFFF"),
        "terminals.open": (
            None,
            "agent? name? session? prompt? subdir? cols? rows? resume? force?",
            "FYYY FFFF",
        ),
        "terminals.list": (None, "agent? state? limit?", "YYYY FFFF"),
        "terminals.get": (None, "sid", "YYYY FFFF"),
        "terminals.screen": (None, "sid", "YYYY FFFF"),
        "terminals.watch": (None, "sid", "YYYY FFFF"),
        "terminals.leave": (None, "sid", "YYYY FFFF"),
        "terminals.history": (None, "sid start count?", "YYYY FFFF"),
        "terminals.search": (None, "sid text", "YYYY FFFF"),
        "terminals.drop": (None, "sid files", "FFYY FFFF"),
        "terminals.type": (None, "sid keys submit? clear?", "FFYY FFFF"),
        "terminals.resize": (None, "sid cols rows", "FFYY FFFF"),
        "terminals.take": (None, "sid cols? rows? force?", "FFYY FFFF"),
        "terminals.share": (None, "sid minutes?", "FFYY FFFF"),
        "terminals.links": (None, "sid", "FFYY FFFF"),
        "terminals.unshare": (None, "sid link?", "FFYY FFFF"),
        "terminals.park": (None, "sid force?", "FFYY FFFF"),
        "terminals.end": (None, "sid", "FFYY FFFF"),
    }.items()
}


def schema_of(method: Method) -> dict[str, Any]:
    """Return the JSON schema of a method's parameters."""
    return method.params.model_json_schema()


def good_params(method: Method) -> dict[str, Any]:
    """Return valid parameters for a method, only the required ones."""
    schema = schema_of(method)
    return {
        name: _example(name, schema["properties"][name], schema)
        for name in schema.get("required", [])
    }


#: Values of parameters that their schema alone does not determine, by name.
_EXAMPLES: dict[str, Any] = {
    "baseHash": "0" * 64,
    "before": "1-1",
    "cols": 80,
    "config": {},
    "auth": "BTBZMqHH6r4Tts7J_aSIgg",
    "files": [{"name": "a", "mimeType": "text/plain", "size": 1, "blob": "0" * 32}],
    "endpoint": "https://push.example.org/1",
    "entry": "1-1",
    "id": "0" * 12,
    "isVisible": True,
    "job": {"name": "n", "schedule": {"every": 60}, "message": "m"},
    "patches": {},
    "publicKey": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNt"
    "oIAiw4",
    "schedule": {"every": 60},
    "scope": "read",
    "rows": 24,
    "runId": "0-1-1",
    "start": 0,
    "verdict": "once",
    "updates": {"enabled": False},
}


def _example(name: str, part: dict[str, Any], root: dict[str, Any]) -> Any:
    """Return a valid value for a parameter."""
    if name in _EXAMPLES:
        return _EXAMPLES[name]
    if part.get("type") == "array":
        return [_example(name, part["items"], root)]
    return "0123456789abcdef"
