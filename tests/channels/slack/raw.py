"""Calls of the tests' Slack with any arguments, also wrong ones."""

import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import orjson

from tests.support.slack import SlackWorkspace


def ask(
    team: SlackWorkspace, method: str, *, token: str = "", as_form: bool = False, **arguments: Any
) -> dict[str, Any]:
    """Call the API with any arguments; return its answer, with the status and `Retry-After`."""
    form = urllib.parse.urlencode(arguments).encode()
    kind = "application/x-www-form-urlencoded" if as_form else "application/json"
    body = form if as_form else orjson.dumps(arguments)
    headers = {"Authorization": f"Bearer {token or team.bot_token}", "Content-Type": kind}
    request = urllib.request.Request(f"{team.api_url}{method}", body, headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return {**orjson.loads(answer.read()), "status": answer.status}
    except urllib.error.HTTPError as refused:
        about = orjson.loads(refused.read()) if refused.code < 500 else {}
        return {**about, "status": refused.code, "after_s": refused.headers["Retry-After"]}


def error(team: SlackWorkspace, method: str, **arguments: Any) -> str:
    """Return the error of a call; empty if it has none."""
    return str(ask(team, method, **arguments).get("error", ""))
