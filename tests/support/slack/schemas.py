"""Generates `schemas.json`: arguments and events of Slack, as `@slack/web-api`'s types know them.

    npm install --prefix DIRECTORY @slack/web-api@8.2.0 ts-json-schema-generator@2.10.0
    python -m tests.support.slack.schemas DIRECTORY

The file has only the methods, events and blocks that an adapter of ours uses, without descriptions
and without the arguments in `_UNUSED`. An argument that isn't in it is unknown to the tests' Slack.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

FILE = Path(__file__).with_name("schemas.json")

#: By method, the type of its arguments.
_ARGUMENTS = {
    "assistant.threads.setStatus": "AssistantThreadsSetStatus",
    "apps.connections.open": "AppsConnectionsOpen",
    "auth.test": "AuthTest",
    "chat.delete": "ChatDelete",
    "chat.postEphemeral": "ChatPostEphemeral",
    "chat.postMessage": "ChatPostMessage",
    "chat.update": "ChatUpdate",
    "conversations.history": "ConversationsHistory",
    "conversations.info": "ConversationsInfo",
    "conversations.list": "ConversationsList",
    "conversations.members": "ConversationsMembers",
    "conversations.open": "ConversationsOpen",
    "conversations.replies": "ConversationsReplies",
    "files.completeUploadExternal": "FilesCompleteUploadExternal",
    "files.getUploadURLExternal": "FilesGetUploadURLExternal",
    "files.info": "FilesInfo",
    "pins.add": "PinsAdd",
    "pins.remove": "PinsRemove",
    "reactions.add": "ReactionsAdd",
    "reactions.get": "ReactionsGet",
    "reactions.remove": "ReactionsRemove",
    "users.conversations": "UsersConversations",
    "users.info": "UsersInfo",
    "views.open": "ViewsOpen",
}
#: By event and subtype, its type.
_EVENTS = {
    "app_mention": "AppMention",
    "channel_archive": "ChannelArchive",
    "channel_id_changed": "ChannelIDChanged",
    "channel_left": "ChannelLeft",
    "channel_rename": "ChannelRename",
    "channel_unarchive": "ChannelUnarchive",
    "member_joined_channel": "MemberJoinedChannel",
    "member_left_channel": "MemberLeftChannel",
    "message": "GenericMessage",
    "message/file_share": "FileShareMessage",
    "message/me_message": "MeMessage",
    "message/message_changed": "MessageChanged",
    "message/message_deleted": "MessageDeleted",
    "message/thread_broadcast": "ThreadBroadcastMessage",
    "reaction_added": "ReactionAdded",
    "reaction_removed": "ReactionRemoved",
}
#: What takes the place of a union of many types.
_CHOSEN = {
    "ActionsBlockElement": ["Button"],
    "ContextBlockElement": ["MrkdwnElement", "PlainTextElement"],
    "InputBlockElement": ["PlainTextInput"],
    "KnownBlock": [
        f"{name}Block" for name in "Actions Context Divider Header Input Markdown Section".split()
    ],
    "SectionBlockAccessory": ["Button"],
    "View": ["ModalView"],
}
#: What a message may also have: who it seems to be from, and the forerunners of blocks.
_UNUSED = frozenset(
    "as_user attachments entities icon_emoji icon_url link_names parse username".split()
)
_WORDS = frozenset(("description", "title", "deprecated", "default", "$comment"))


def main(directory: Path) -> None:
    """Write the file, from the packages in a directory."""
    (directory / "types.ts").write_text(
        'export * from "@slack/web-api";\nexport * from "@slack/types";\n'
    )
    options = {"strict": True, "module": "node16", "moduleResolution": "node16", "types": ["node"]}
    (directory / "tsconfig.json").write_text(json.dumps({"compilerOptions": options}))
    packages = ("@slack/web-api", "@slack/types", "ts-json-schema-generator")
    found: dict[str, Any] = {"made_by": "python -m tests.support.slack.schemas", "packages": {}}
    for package in packages:
        about = json.loads((directory / "node_modules" / package / "package.json").read_text())
        found["packages"][package] = about["version"]
    definitions: dict[str, Any] = {}
    found["arguments"] = {}
    for method, name in _ARGUMENTS.items():
        found["arguments"][method] = _reduced(directory, f"{name}Arguments", definitions)
    found["definitions"] = {
        name: about for name, about in definitions.items() if _is_named(name, found, definitions)
    }
    found["events"] = {event: _flat(directory, f"{name}Event") for event, name in _EVENTS.items()}
    FILE.write_text(_written(found))


def _is_named(name: str, *parts: Any) -> bool:
    return f'"#/definitions/{name}"' in json.dumps(parts)


def _written(found: dict[str, Any]) -> str:
    """Return the file's text, with a line for each method, event and type."""
    lines = []
    for key, about in sorted(found.items()):
        entries = [
            f"  {json.dumps(name)}: {json.dumps(one, sort_keys=True)}"
            for name, one in (sorted(about.items()) if isinstance(about, dict) else ())
        ]
        inside = "{\n" + ",\n".join(entries) + "\n }" if entries else json.dumps(about)
        lines.append(f" {json.dumps(key)}: {inside}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _generated(directory: Path, name: str) -> dict[str, Any]:
    """Return the definitions of a type and of all that it names."""
    argv = ["node", "node_modules/ts-json-schema-generator/bin/ts-json-schema-generator.js"]
    argv += ["--path", "types.ts", "--tsconfig", "tsconfig.json", "--no-type-check", "--type", name]
    answer = subprocess.run(argv, cwd=directory, check=True, capture_output=True)
    return dict(json.loads(answer.stdout)["definitions"])


def _reduced(directory: Path, name: str, definitions: dict[str, Any]) -> Any:
    """Return the schema of a type; what it names goes into `definitions`."""
    types = _generated(directory, name)

    def visit(part: Any) -> Any:
        if isinstance(part, list):
            return [visit(each) for each in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            other = unquote(part["$ref"].rpartition("/")[2])
            if other.startswith("OptionalArgument<"):
                return visit(types[other])
            if other in _CHOSEN:
                return {"anyOf": [visit({"$ref": one}) for one in _CHOSEN[other]]}
            if other not in definitions:
                definitions[other] = None  # it may name itself
                definitions[other] = visit(types[other])
            return {"$ref": f"#/definitions/{other}"}
        if "properties" in part:
            kept = {key: one for key, one in part["properties"].items() if key not in _UNUSED}
            part = {**part, "properties": kept}
        made = {
            key: {name: visit(one) for name, one in value.items()}
            if key == "properties"
            else visit(value)
            for key, value in part.items()
            if key not in _WORDS
        }
        return _union(made) if "anyOf" in made else made

    made = dict(visit(types[name]))
    return made if made.keys() & {"anyOf", "$ref"} else {"additionalProperties": False, **made}


def _union(part: dict[str, Any]) -> dict[str, Any]:
    """Return a union without repetitions, and without the types that aren't used."""
    kept: list[Any] = []
    for one in part["anyOf"]:
        is_unused = bool(_UNUSED.intersection(one.get("required", ())))
        is_any = one in ({"not": {}}, {"$ref": "#/definitions/Block"})
        if one not in kept and not is_unused and not is_any:
            kept += one["anyOf"] if set(one) == {"anyOf"} else [one]
    return kept[0] if len(kept) == 1 else {**part, "anyOf": kept}


def _flat(directory: Path, name: str) -> dict[str, Any]:
    """Return what an event must have, and of which JSON type its values are."""
    about = _generated(directory, name)[name]
    properties = {
        key: {word: value[word] for word in ("type", "const", "enum") if word in value}
        for key, value in about["properties"].items()
        if "not" not in value
    }
    required = [key for key in about.get("required", ()) if key in properties]
    return {"properties": properties, "required": required}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
