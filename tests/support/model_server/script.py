"""Directives in the user's last text, and the answer that they make."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.support.model_server.conversation import Call, Conversation, Plan, Tool

_NAMES = """
    SAY LONG DRIP THINK TOOL SHELL READ SLEEP IMAGES HTTP RETRYAFTER DROP OVERLOADED RECALL TOOLS
    GREPSYS LEN ECHO VERDICT USED
""".split()
_DIRECTIVE = re.compile(rf"(?:^|(?<=\s))({'|'.join(_NAMES)})(?![A-Za-z_])(?::|(?=\*|\s|$))")
#: RemoteClaw's line about a message: it may quote earlier ones, with what they directed.
_HEADER = re.compile(r"^\[remoteclaw .*\]\n", re.MULTILINE)
#: What the agents call their tools, and the ways in which a path is given to one that reads.
_SHELLS = ("Bash", "exec_command", "run_shell_command", "bash")
_READERS = ("Read", "read_file", "read")
_PATHS = ("file_path", "absolute_path", "filePath")
#: codex stops waiting for a command after 10 s unless it is told to wait longer, 30 s at most.
_YIELD_MS = 30_000
_SUMMARIES = re.compile(
    r"create a detailed summary of the conversation|CONTEXT CHECKPOINT COMPACTION"
    r"|anchored summary|context summarization agent|state_snapshot"
)


class Script:
    """The directives; it remembers which of them were to apply only a few times."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str, str]] = Counter()

    def plan(self, api: str, conversation: Conversation) -> Plan:
        """Return what a request is answered with."""
        plan, calls = Plan(), []
        text, results = conversation.last, conversation.results
        for name, rest in _directives(text):
            match name:
                case "TOOL" | "SHELL" | "READ":
                    calls.append(_call(name, rest, conversation))
                case "HTTP" | "DROP" | "OVERLOADED" if not self._applies(api, text, name, rest):
                    pass
                case "HTTP" | "DROP" | "OVERLOADED" | "RETRYAFTER" | "SLEEP" | "THINK" | "USED":
                    _direct(plan, name, rest)
                case _:
                    plan.texts.append(_answer(name, rest, conversation))
            if name == "DRIP":
                plan.drip_s = int(_word(rest).partition(":")[2]) / 1000
        if len(results) < len(calls):
            plan.call = calls[len(results)]
        elif calls:
            plan.texts.insert(0, f"DONE {results[-1]}")
        if plan.cut and not plan.texts:
            plan.texts.append("This answer is cut off in the middle " + "of it " * 40)
        if not plan.texts and not calls and plan.status == 200:
            plan.texts.append(_answer("ECHO", "", conversation))
        return plan

    def _applies(self, api: str, text: str, name: str, rest: str) -> bool:
        """Whether a directive with *n still applies to this text."""
        match = re.match(r"[\w:]*\*(\d+)", rest)
        if match is None:
            return True
        self._seen[api, text, name] += 1
        return self._seen[api, text, name] <= int(match[1])


def aside(conversation: Conversation) -> Plan | None:
    """Return the answer to what a CLI asks for itself, None if it is the user who asks."""
    if conversation.schema is not None:
        return Plan([json.dumps(_sample(conversation.schema))])
    if not conversation.tools and "title" in conversation.system[:400].lower():
        return Plan(["Scripted title"])
    return Plan(["Scripted summary"]) if is_summary(conversation) else None


def is_summary(conversation: Conversation) -> bool:
    """Whether a CLI asks for a summary of the conversation."""
    asked = f"{conversation.system}\n{conversation.last}"
    return conversation.schema is None and bool(_SUMMARIES.search(asked))


def _directives(text: str) -> Iterator[tuple[str, str]]:
    """Yield each directive with the text behind it."""
    start = max((header.end() for header in _HEADER.finditer(text)), default=0)
    while match := _DIRECTIVE.search(text, start):
        start = match.end()
        yield match[1], text[start:]
        if match[1] == "SHELL":  # a command may have words in capitals
            start += len(_line(text[start:]))


def _line(rest: str) -> str:
    return rest.partition("\n")[0]


def _word(rest: str) -> str:
    return rest.split()[0] if rest.split() else ""


def _direct(plan: Plan, name: str, rest: str) -> None:
    """Change the manner of an answer."""
    match name:
        case "HTTP":
            status, _, plan.about = _word(rest).partition("*")[0].partition(":")
            plan.status = 200 if plan.cut else int(status)
        case "RETRYAFTER":
            plan.retry_after_s = _word(rest)
        case "DROP":
            plan.cut = re.split(r"[*\s]", rest, maxsplit=1)[0] or "half"
            plan.status = 200
        case "OVERLOADED":
            plan.status, plan.fails_in_stream = 529, True
        case "SLEEP":
            plan.sleep_s += float(_word(rest))
        case "USED":
            plan.charge = replace(plan.charge, input=int(_word(rest)))
        case "THINK":
            plan.thinking = _line(rest).strip()


def _answer(name: str, rest: str, conversation: Conversation) -> str:
    """Return what a directive wants to read."""
    value, word = _line(rest).strip(), _word(rest)
    match name:
        case "SAY":
            return value
        case "LONG":
            return _long_text(int(word))
        case "DRIP":
            return " ".join(f"w{n + 1}" for n in range(int(word.partition(":")[0])))
        case "RECALL":
            earlier = [text for texts in conversation.users for text in texts][:-1]
            return "RECALL " + json.dumps(earlier)
        case "TOOLS":
            return "TOOLS " + json.dumps([tool.full_name for tool in conversation.tools])
        case "GREPSYS":
            return f"GREPSYS {str(value in conversation.system).lower()}"
        case "LEN":
            return f"LEN {len(conversation.last)}"
        case "VERDICT":  # of an aside, closed by the tag whose key the question gives
            wanted, _, text = value.partition(" ")
            key = re.search(r"\[\[answered:([0-9a-f]+)\]\]", conversation.last)
            return f"{text}\n[[{wanted}:{key[1] if key else ''}]]".strip()
        case "IMAGES":
            pictures = [f"{picture.kind} {picture.size}" for picture in conversation.pictures]
            return "IMAGES " + json.dumps(pictures)
        case _:
            return "ECHO " + conversation.last[:300]


def _call(name: str, rest: str, conversation: Conversation) -> Call:
    """Return the use of a tool that a directive wants."""
    tools = conversation.tools
    match name:
        case "TOOL":
            wanted, _, arguments = rest.partition(":")
            return Call(_find(wanted, tools), json.JSONDecoder().raw_decode(arguments.strip())[0])
        case "SHELL":
            return _shell(_line(rest).strip(), tools)
        case _:
            match = re.search(r'"path":"([^"]+)"', conversation.last)
            return _reader(match[1] if match else "none", tools)


def _find(name: str, tools: list[Tool]) -> Tool:
    """Return the tool whose name ends so: agents put their server's before it, each its own way."""

    def plain(full_name: str) -> str:
        return full_name.replace("__", "_")

    exact = (tool for tool in tools if tool.full_name == name)
    ending = (tool for tool in tools if plain(tool.full_name).endswith(plain(name)))
    return next(exact, None) or next(ending, None) or Tool(name)


def _shell(command: str, tools: list[Tool]) -> Call:
    tool = next((tool for tool in tools if tool.name in _SHELLS), Tool(_SHELLS[0]))
    offered = tool.parameters.get("properties", {})
    arguments: dict[str, Any] = {"cmd" if "cmd" in offered else "command": command}
    if "description" in offered:
        arguments["description"] = "Run what was asked for"
    if "yield_time_ms" in offered:
        arguments["yield_time_ms"] = _YIELD_MS
    return Call(tool, arguments)


def _reader(path: str, tools: list[Tool]) -> Call:
    tool = next((tool for tool in tools if tool.name in _READERS), None)
    if tool is None:  # codex reads with its shell
        return _shell(f"cat {shlex.quote(path)}", tools)
    offered = tool.parameters.get("properties", {})
    return Call(tool, {next(name for name in _PATHS if name in offered): path})


def _sample(schema: dict[str, Any]) -> Any:
    """Return a small value that fits a schema."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type", "object").lower():
        case "object":
            return {name: _sample(part) for name, part in schema.get("properties", {}).items()}
        case "array":
            return []
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case _:
            return "scripted"


def _long_text(size: int) -> str:
    parts: list[str] = []
    while sum(map(len, parts)) < size:
        number = len(parts) + 1
        parts.append(
            f"## Section {number}\n\nParagraph {number} has **bold** and `code`, and goes on so "
            f"that there is something to cut.\n\n- one of {number}\n- two of {number}\n\n"
            f"```python\ndef f_{number}(x):\n    return x + {number}\n```\n\n"
        )
    return "".join(parts) + "END-OF-LONG"
