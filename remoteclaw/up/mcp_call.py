"""A program for `remoteclaw doctor`: one MCP call, from the environment of an agent.

Run with an agent's environment, it sends the call where the agent's CLI would: perhaps to a proxy.
"""

import json
import os
import sys
import urllib.error
import urllib.request

#: The environment variable with the token.
TOKEN = "REMOTECLAW_GATEWAY_TOKEN"  # noqa: S105 - a name
#: Time limit of the call, in seconds.
ANSWER_S = 10.0


def main() -> None:
    """List the tools at the MCP address in the arguments; print their number, or exit with why."""
    headers = {
        "Authorization": f"Bearer {os.environ[TOKEN]}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    request = urllib.request.Request(sys.argv[1], json.dumps(body).encode(), headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310
            count = len(json.load(answer)["result"]["tools"])
    except urllib.error.HTTPError as error:
        sys.exit(f"the answer has status {error.code}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"there is no answer: {getattr(error, 'reason', error)}")
    sys.stdout.write(f"{count}\n")


if __name__ == "__main__":
    main()
