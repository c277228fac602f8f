"""Everything that is promised of the gateway's methods and tools: one row for each.

It stands here as a table and is not computed, so that a mistake in a declaration or in the policy
can't be in both.
"""

from dataclasses import dataclass
from typing import Any

from remoteclaw.tools.base import Method

__all__ = ["PROMISED", "Promise", "good_params", "schema_of"]


@dataclass(frozen=True)
class Promise:
    """What is promised of one method."""

    tool: str | None
    """Its name as a tool."""
    parameters: str
    """The names of its parameters; a ? marks one that may be left out."""
    rights: str
    """What comes of a call by an operator with the scope read, write, admin; and by an agent: in a
    turn of the owner, a stranger, a person with the profile `limited`, and between turns.
    Y: answered. F: forbidden. T: no turn runs."""


#: Every method by its name.
PROMISED = {
    name: Promise(*row)
    for name, row in {
        "sessions.list": ("sessions_list", "filter? limit?", "YYY YYYT"),
        "chat.history": ("sessions_history", "sessionKey limit? before?", "YYY YYYT"),
        "sessions.send": ("sessions_send", "sessionKey? label? message timeout?", "FYY YYFT"),
        "sessions.spawn": ("sessions_spawn", "prompt agentId? channel? knows? label?", "FYY YYFT"),
        "sessions.status": ("session_status", "sessionKey?", "YYY YYYT"),
        "agents.list": ("agents_list", "", "YYY YYYT"),
        "sessions.subagents": ("subagents", "action? message? params?", "FYY YYFT"),
        "sessions.progress": ("session_progress", "progress", "FYY YYFT"),
        "sessions.tree": (None, "sessionKey", "YYY FFFF"),
        "message.send": ("message_send", "target message media? threadId?", "FYY YYFT"),
        "message.reply": ("message_reply", "message replyToId?", "FYY YYYT"),
        "message.threadReply": ("message_thread_reply", "message threadId", "FYY YYYT"),
        "message.broadcast": ("message_broadcast", "targets message", "FYY YYFT"),
        "message.react": ("message_react", "emoji messageId", "FYY YYYT"),
        "message.delete": ("message_delete", "messageId", "FYY YYFT"),
        "message.sendAttachment": ("message_send_attachment", "target file caption?", "FYY YYFT"),
        "message.sendWithEffect": (
            "message_send_with_effect",
            "target message effectId",
            "FYY YYFT",
        ),
        "message.pin": ("message_pin", "messageId", "FYY YYFT"),
        "message.read": ("message_read", "channelId? limit?", "YYY YYYT"),
        "cron.status": ("cron_status", "", "YYY YFFT"),
        "cron.list": ("cron_list", "filter?", "YYY YFFT"),
        "cron.add": ("cron_add", "job", "FFY YFFT"),
        "cron.update": ("cron_update", "jobId updates", "FFY YFFT"),
        "cron.remove": ("cron_remove", "jobId", "FFY YFFT"),
        "cron.run": ("cron_run", "jobId force?", "FFY YFFT"),
        "cron.runs": ("cron_runs", "jobId? limit?", "YYY YFFT"),
        "gateway.restart": ("gateway_restart", "", "FFY YFFT"),
        "config.get": ("gateway_config_get", "key?", "YYY YFFT"),
        "config.apply": ("gateway_config_apply", "config baseHash", "FFY YFFT"),
        "config.patch": ("gateway_config_patch", "patches baseHash?", "FFY YFFT"),
        "config.schema": ("gateway_config_schema", "", "YYY YFFT"),
        "config.approvals": (None, "", "YYY FFFF"),
        "config.approve": (None, "id", "FFY FFFF"),
        "config.reject": (None, "id", "FFY FFFF"),
        "asks.list": (None, "all?", "YYY FFFF"),
        "asks.show": (None, "id", "YYY FFFF"),
        "asks.answer": (None, "id verdict reason?", "FFY FFFF"),
        "health": (None, "", "YYY FFFF"),
        "status": (None, "", "YYY FFFF"),
        "fleet.status": (None, "", "YYY FFFF"),
        "deadletters.list": (None, "limit?", "YYY FFFF"),
        "deadletters.retry": (None, "id", "FFY FFFF"),
        "deadletters.drop": (None, "id", "FFY FFFF"),
        "doctor": (None, "", "YYY FFFF"),
        "agent": (
            None,
            "message channel from to? account? threadId? agentId? messageId?",
            "FYY FFFF",
        ),
        "agent.wait": (None, "runId timeout?", "YYY FFFF"),
        "sessions.stop": (None, "sessionKey", "FYY FFFF"),
        "sessions.reset": (None, "sessionKey reason?", "FFY FFFF"),
        "sessions.subscribe": (None, "sessionKey", "YYY FFFF"),
        "sessions.unsubscribe": (None, "sessionKey", "YYY FFFF"),
        "sessions.search": (
            None,
            "query? inWords? state? channel? agent? limit?",
            "YYY FFFF",
        ),
        "sessions.show": (None, "sessionKey", "YYY FFFF"),
        "sessions.archive": (None, "sessionKey", "YYY FFFF"),
        "sessions.archived": (None, "sessionKey limit? before? endedMs", "YYY FFFF"),
        "sessions.trace": (None, "what limit?", "YYY FFFF"),
        "sessions.label": (None, "sessionKey label?", "FYY FFFF"),
        "sessions.queue": (
            None,
            "sessionKey mode? debounceMs? cap? drop? gatherMs? gatherMostMs? reset?",
            "FFY FFFF",
        ),
        "sessions.write": (None, "sessionKey message", "FFY FFFF"),
        "chat.open": (None, "agentId? sessionKey? sender? follow?", "FYY FFFF"),
        "chat.send": (
            None,
            "sessionKey message messageId attachments? toCaller? isBackground?",
            "FYY FFFF",
        ),
        "chat.outcome": (None, "sessionKey entry timeout? knowsPause?", "YYY FFFF"),
        "chat.shown": (None, "key unsaved?", "FYY FFFF"),
        "web.history": (None, "conversation? before limit?", "FYY FFFF"),
        "web.open": (None, "conversation? after?", "FYY FFFF"),
        "web.send": (
            None,
            "conversation? messageId text? replyTo? files? answer? reaction?",
            "FYY FFFF",
        ),
        "push.key": (None, "", "FYY FFFF"),
        "push.subscribe": (None, "endpoint publicKey auth", "FYY FFFF"),
        "push.unsubscribe": (None, "", "FYY FFFF"),
        "push.visible": (None, "isVisible", "FYY FFFF"),
        "usage": (None, "by? days?", "YYY FFFF"),
    }.items()
}


def schema_of(method: Method) -> dict[str, Any]:
    """Return the JSON schema of a method's parameters."""
    return method.params.model_json_schema()


def good_params(method: Method) -> dict[str, Any]:
    """Return parameters that a method takes: those alone that it needs."""
    schema = schema_of(method)
    return {
        name: _example(name, schema["properties"][name], schema)
        for name in schema.get("required", [])
    }


#: What is told by a parameter's name: a pattern, or what an object of that name has.
_EXAMPLES: dict[str, Any] = {
    "baseHash": "0" * 64,
    "before": "1-1",
    "config": {},
    "auth": "BTBZMqHH6r4Tts7J_aSIgg",
    "endedMs": 1,
    "endpoint": "https://push.example.org/1",
    "entry": "1-1",
    "id": "0" * 12,
    "isVisible": True,
    "job": {"name": "n", "schedule": {"every": 60}, "message": "m"},
    "patches": {},
    "publicKey": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNt"
    "oIAiw4",
    "runId": "0-1-1",
    "verdict": "once",
    "updates": {"enabled": False},
}


def _example(name: str, part: dict[str, Any], root: dict[str, Any]) -> Any:
    """Return a value that a parameter takes."""
    if part.get("type") == "array":
        return [_example(name, part["items"], root)]
    return _EXAMPLES.get(name, "0123456789abcdef")
