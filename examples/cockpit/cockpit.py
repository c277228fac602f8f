"""A cockpit over HTTP: lists sessions, sends, follows a turn, and answers requests of agents.

usage: cockpit.py list | send SESSION TEXT | requests | answer ID VERDICT [REASON]

Environment: REMOTECLAW_URL, the gateway's address, and REMOTECLAW_TOKEN, an operator's token.
"""

import json
import os
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any


def opened(path: str, body: object = None) -> HTTPResponse:
    """Send a request; leave with the gateway's sentence if it is refused."""
    headers = {"Authorization": f"Bearer {os.environ['REMOTECLAW_TOKEN']}"}
    if body is not None:  # a call that is repeated with the same key has no second effect
        headers |= {"Content-Type": "application/json", "Idempotency-Key": uuid.uuid4().hex}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{os.environ['REMOTECLAW_URL']}{path}", data, headers)
    try:
        return urllib.request.urlopen(request, timeout=120)  # type: ignore[no-any-return]
    except urllib.error.HTTPError as error:
        sys.exit(json.load(error)["error"]["message"])


def call(method: str, **params: Any) -> dict[str, Any]:
    """Call a method or a tool of the gateway."""
    with opened("/tools/invoke", {"tool": method, "args": params}) as response:
        return dict(json.load(response)["result"])


def events(stream: HTTPResponse) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the data of each server-sent event."""
    name = ""
    for line in stream:
        field, _, value = line.decode().rstrip("\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def send(session: str, text: str) -> int:
    """Send a message and follow its turn; return the exit status."""
    sid = call("sessions.show", sessionKey=session)["id"]
    with opened(f"/api/sessions/{sid}/events") as stream:  # before the message: no event is missed
        run = call("sessions.write", sessionKey=sid, message=text)["runId"]
        turn = run.partition("-")[2]
        for name, event in events(stream):
            if name == "request" and event["state"] == "open":
                show(event)
                verdict, _, reason = input("once, conversation, or deny WHY: ").partition(" ")
                answer(event["id"], verdict, reason)
            elif name == "live" and event["turn"] == turn and event["text"]:
                print(f"  … {event['text'][-60:]!r}", *(tool["tool"] for tool in event["activity"]))
            elif name == "outcome" and event["runId"] == run:
                print(event["reply"])
                return 0 if event["status"] == "done" else 1
    sys.exit("The stream has ended before the turn: ask with outcomes.wait.")


def show(request: dict[str, Any]) -> None:
    """Print a request of an agent."""
    print(request["id"], request["agent"], request["tool"], request["what"], sep="\t")


def answer(request: str, verdict: str, reason: str = "") -> None:
    """Answer a request, as the token's owner."""
    print(call("requests.answer", id=request, verdict=verdict, reason=reason)["detail"])


def main(arguments: list[str]) -> int:
    """Run one command; return the exit status."""
    match arguments:
        case ["list"]:
            for session in call("sessions.search", limit=20)["sessions"]:
                name = session.get("label") or session.get("title") or session["key"]
                print(session["id"][:8], session["state"], name, sep="\t")
        case ["send", session, text]:
            return send(session, text)
        case ["requests"]:
            for request in call("requests.list")["requests"]:
                show(request)
        case ["answer", request, verdict, *reason]:
            answer(request, verdict, " ".join(reason))
        case _:
            sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
