"""Ask an agent through RemoteClaw's webhook, wait, and print the answer.

usage: ask.py [--chat NAME] [--id ID] [--timeout SECONDS] QUESTION

Environment: REMOTECLAW_WEBHOOK, the address, and WEBHOOK_TOKEN, the token of both sides.
"""

import argparse
import hashlib
import hmac
import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid

#: The longest wait of one request, in seconds; proxies close a silent connection after a minute.
WAIT_S = 50
#: The pause before another try, in seconds: each try counts as a message of this sender.
PAUSE_S = 2


def post(url: str, token: str, message: dict[str, str], wait_s: int) -> dict[str, object]:
    """Send a signed message; return its state after at most `wait_s` seconds.

    The same message again counts as the same one, so this may be repeated at will.
    """
    body, at = json.dumps({**message, "wait": wait_s}).encode(), str(int(time.time()))
    signature = hmac.new(token.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    headers = {
        "Content-Type": "application/json",
        "X-RemoteClaw-Timestamp": at,
        "X-RemoteClaw-Signature": f"v1={signature}",
    }
    request = urllib.request.Request(url, body, headers)
    with urllib.request.urlopen(request, timeout=wait_s + 30) as response:
        return dict(json.load(response))


def main() -> int:
    """Ask; return the exit status: 0 an answer, 1 a failure, 3 none in time."""
    parser = argparse.ArgumentParser(description="Ask an agent, and print its answer.")
    parser.add_argument("question")
    parser.add_argument("--id", default=uuid.uuid4().hex, help="a repeated id counts once")
    parser.add_argument("--chat", help="the conversation; else a new one")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS")
    asked = parser.parse_args()
    url, token = os.environ["REMOTECLAW_WEBHOOK"], os.environ["WEBHOOK_TOKEN"]
    chat = asked.chat or f"job-{asked.id}"
    message = {"id": asked.id, "chat": chat, "from": "ci", "text": asked.question}
    end = time.monotonic() + asked.timeout
    while (left := end - time.monotonic()) > 0:
        try:
            state = post(url, token, message, max(1, min(WAIT_S, int(left))))
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code != 429:
                sys.stderr.write(f"refused: {error.read().decode(errors='replace')}\n")
                return 1
        except OSError as error:  # the gateway restarts, or the network is away
            sys.stderr.write(f"{url}: {error}; trying again\n")
        else:
            if state["status"] not in ("accepted", "running"):
                failed = state["status"] != "done" or state["isError"]
                out = sys.stderr if failed else sys.stdout
                out.write(f"{state['text'] or state['status']}\n")
                return 1 if failed else 0
            if state["pause"]:
                sys.stderr.write(f"waiting {state['pause']}\n")
        time.sleep(max(0, min(PAUSE_S, end - time.monotonic())))
    sys.stderr.write(f"no answer within {asked.timeout:g} seconds\n")
    return 3


if __name__ == "__main__":
    sys.exit(main())
