"""A person's chat whose agents fail on demand, on a Redis clock that can be moved."""

import json
import time
from typing import Any

from remoteclaw.bridge import Hooks
from remoteclaw.config.load import load_config
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.messages import SessionKey
from remoteclaw.session.drain import Drain
from tests.support.agents import AgentCli
from tests.support.stack import REPLIES, Stack, message

HOUR_MS = 3_600_000
ZONE = "Europe/Berlin"

#: An agent that fails as the file `failures` says, and answers when no failure is left there.
AGENT = """
open('starts', 'a').write('x')
while True:
    word = turn()['prompt'].split()[-1]
    open('asked', 'a').write(word + chr(10))
    failures = json.load(open('failures')) if os.path.exists('failures') else []
    if failures:
        failure = failures.pop(0)
        json.dump(failures, open('failures', 'w'))
        for event in failure.pop('first', []): say(**event)
        say(type='done', error='it failed', **failure)
        continue
    while word == 'wait' and not os.path.exists('go'): time.sleep(0.01)
    say(type='text', text=word + ' is answered'); say(type='done')
"""


class Chat:
    """A person's chat with an agent that fails on demand, on a Redis clock that can be moved."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.workspace = stack.home.path / "workspaces" / "main"

    def fail(self, *failures: dict[str, Any]) -> None:
        """Set the failures of the agent's next turns."""
        self.workspace.mkdir(parents=True, exist_ok=True)
        (self.workspace / "failures").write_text(json.dumps(failures))

    def asked(self) -> list[str]:
        file = self.workspace / "asked"
        return file.read_text().split() if file.exists() else []

    def starts(self) -> int:
        file = self.workspace / "starts"
        return len(file.read_text()) if file.exists() else 0

    async def append(self, text: str, **fields: Any) -> Accepted:
        return await self.stack.append(text, timezone=ZONE, **fields)

    async def drain(self, accepted: Accepted, hooks: Hooks | None = None) -> None:
        """Run the session, like a work-horse."""
        config = load_config(self.stack.home.config_file, {})
        drain = Drain(self.stack.fleet, config, self.stack.home, hooks or Hooks())
        await drain.run(accepted.session.sid)

    async def hints(self) -> int:
        """Return the number of waiting hints, and remove them."""
        client = self.stack.fleet.scripts.client
        count = await self.stack.fleet.workers.waiting()
        await client.delete("rq:queue:agents", "rq:queue:background")
        host = self.stack.home.host_id
        await client.delete(*(f"rq:queue:{lane}@{host}" for lane in keys.LANES))
        return count

    async def let_pass(self, milliseconds: int) -> None:
        """Move the clock forward, and sweep."""
        await self.stack.fleet.scripts.client.incrby("test:shift", milliseconds)
        await self.stack.fleet.sweeper.sweep()

    async def texts(self, user: str = "alice") -> list[str]:
        """Return the messages in the chat with a user, without the empty ends of turns."""
        client = self.stack.fleet.scripts.client
        entries: Any = await client.xrange(REPLIES)
        replies = [json.loads(fields[b"reply"]) for _, fields in entries]
        sid = SessionKey.of(message("hi", from_=user), agent="main").sid
        return [reply["text"] for reply in replies if reply["sid"] == sid and reply["text"]]

    async def status(self, accepted: Accepted) -> str:
        outcome = await self.stack.fleet.outcomes.read(accepted.session.sid, accepted.entry_id)
        assert outcome is not None
        return outcome.status


def limit(until_ms: int | None = None) -> dict[str, Any]:
    """Return a failure by a usage limit."""
    end = {} if until_ms is None else {"retry_at_ms": until_ms}
    return {"category": "usage_limit", **end}


def in_an_hour() -> int:
    return int(time.time() * 1000) + HOUR_MS


def busy(pause_s: float | None = None) -> dict[str, Any]:
    """Return a failure by an overloaded model, which may say when to retry."""
    retry = {} if pause_s is None else {"retry_at_ms": int((time.time() + pause_s) * 1000)}
    return {"category": "retryable", **retry}


def subscribed(claude: AgentCli) -> dict[str, Any]:
    """Return the configuration of a claude with a subscription: an API key has no plan."""
    config = claude.config()
    token = "-".join(("sk", "ant", "oat01", "nobodys"))
    config["env"] = {**config["env"], "CLAUDE_CODE_OAUTH_TOKEN": token}
    del config["env"]["ANTHROPIC_API_KEY"]
    return config
