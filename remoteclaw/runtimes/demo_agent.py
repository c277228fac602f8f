"""The demo agent's program: an agent CLI without a model, for people who have none installed.

It speaks one JSON object a line.
In: `{"type": "turn", "prompt": …}`, `{"type": "interrupt"}`, and while a turn runs
`{"type": "steer", "id": …, "prompt": …}`, which is answered with `steered`, or with `refused` when
no turn runs any more, and `{"type": "aside", "id": …, "prompt": …}`, which is answered with an
`aside` of the same id, with `text` or `error`.
Out: `text`, `thinking`, `tool_use`, `tool_result`, and exactly one `done` for each turn.
Only the standard library is used: it runs as `python -I -S`, apart from everything of ours.
"""

import json
import os
import select
import sys
import time

#: Seconds between two words: quick enough to wait for, slow enough to be seen.
PAUSE_S = 0.004

ABOUT = """\
This is RemoteClaw's demo agent. **No model is behind it**: it answers with fixed words, so that \
you can see how a message travels. Install an agent CLI, such as `claude`, and it takes my place.

You wrote {count} characters, and this is message {number} of our conversation. \
My one tool looked at my workspace and found this:

```text
{listing}
```

Send `slow` to watch me count and to stop me, `long` for an answer in several parts,
`file` to get one from me, `memory` for what you said before, `fail` for a failure,
or `crash` to see what happens when an agent dies."""

#: Where the file is that `file` asks for.
FILE = "hello-from-the-demo.txt"


class Interrupted(Exception):
    """Raised when the person stops the turn."""


class Demo:
    """One conversation, kept in a file so that it survives this process."""

    def __init__(self, session_id, is_resumed):
        self.file = os.path.join(".demo-agent", f"{session_id}.json")
        self.said = []
        self.is_unknown = False
        self.buffer = b""
        self.heard = []
        """Messages that came during the turn and that nothing was said about yet."""
        try:
            with open(self.file, encoding="utf-8") as file:
                self.said = json.load(file)
        except (OSError, ValueError):
            self.is_unknown = is_resumed

    def run(self):
        """Answer until standard input ends."""
        while (message := self.receive(None)) is not None:
            if message.get("type") == "turn":
                self.turn(str(message.get("prompt", "")))
            elif message.get("type") == "steer":
                say(type="refused", id=message.get("id"))
            elif message.get("type") == "aside":
                self.aside(message)

    def turn(self, prompt):
        """Answer one message."""
        if self.is_unknown:
            say(type="done", error="No conversation found: the demo's file is gone")
            return
        self.heard = []
        try:
            self.look_at_header(prompt)
            self.answer(self.remember(prompt).strip())
            self.mention()
        except Interrupted:
            say(type="done", aborted=True)
        except Failure as failure:
            say(type="done", error=str(failure))
        else:
            say(type="done")

    def look_at_header(self, prompt):
        """Say what came with the message, and note what was said before; its first line tells."""
        header = prompt.partition("\n")[0]
        try:
            about = json.loads(header.removeprefix("[remoteclaw ").removesuffix("]"))
        except ValueError:
            return
        before = about.get("conversation_before", [])
        self.said += [note["said"] for note in before if "said" in note]
        for message in about.get("messages", [about]):
            for file in message.get("attachments", []):
                if "path" in file:
                    size = os.path.getsize(file["path"])
                    self.stream(f"I have `{file['name']}` ({file['type']}, {size} bytes).\n\n")

    def remember(self, prompt):
        """Keep what was said, before it is answered: this process may not live so long."""
        # The first line is RemoteClaw's own, about who writes and when.
        text = prompt.split("\n\n", 1)[-1] if prompt.startswith("[remoteclaw ") else prompt
        self.said.append(text)
        folder = os.path.dirname(self.file)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(os.path.join(folder, ".gitignore"), "w", encoding="utf-8") as file:
            file.write("*\n")  # it may be somebody's project
        draft = self.file + ".new"
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(self.said, file)
        os.replace(draft, self.file)
        return text

    def answer(self, text):
        """Do what the message asks for."""
        word = text.lower()
        if word == "slow":
            for number in range(1, 61):
                self.stream(f"{number} ")
                self.pause(0.5)
                self.mention()
        elif word == "long":
            for number in range(1, 41):
                self.stream(f"## Part {number}\n\n" + "All work and no play. " * 12 + "\n\n")
        elif word == "file":
            with open(FILE, "w", encoding="utf-8") as file:
                file.write("The demo agent made this file for you.\n")
            self.stream(f"Here you are. [[attach:{FILE}]]")
        elif word == "memory":
            self.stream(
                "You said before:\n\n" + ("\n".join(f"- {s}" for s in self.said[:-1]) or "-")
            )
        elif word == "fail":
            self.stream("I try, and then… ")
            raise Failure("the demo fails when asked to")
        elif word == "crash":
            self.stream("Goodbye… ")
            os._exit(3)
        else:
            self.stream(ABOUT.format(count=len(text), number=len(self.said), listing=self.look()))

    def look(self):
        """Use the one tool."""
        say(type="tool_use", id="look-1", name="list_workspace", input={"path": os.getcwd()})
        names = sorted(name for name in os.listdir(".") if not name.startswith("."))[:10]
        listing = "\n".join(names) or "(an empty directory)"
        say(type="tool_result", id="look-1", output=listing)
        return listing

    def stream(self, text):
        """Say a text word by word."""
        words = text.split(" ")
        for position, word in enumerate(words):
            say(type="text", text=word if position == len(words) - 1 else word + " ")
            self.pause(PAUSE_S)

    def pause(self, seconds):
        """Wait, and listen meanwhile."""
        message = self.receive(seconds) or {}
        if message.get("type") == "interrupt":
            raise Interrupted
        if message.get("type") == "aside":
            self.aside(message)
        if message.get("type") == "steer":
            self.heard.append(self.remember(str(message.get("prompt", ""))).strip())
            say(type="steered", id=message.get("id"))

    def aside(self, message):
        """Answer beside the turn, by fixed words and with a verdict by the message's first word."""
        header, _, asked = str(message.get("prompt", "")).partition("\n\n")
        key = header.partition("[[answered:")[2].partition("]]")[0]
        verdict = {"stop": "stop", "also": "work"}.get(asked.strip().lower().partition(" ")[0], "")
        text = "" if verdict else "I'm still at it, and answer you beside it."
        tag = f"[[{verdict or 'answered'}:{key}]]"
        say(type="aside", id=message.get("id"), text=f"{text}\n{tag}")

    def mention(self):
        """Say what came meanwhile."""
        while self.heard:
            self.stream(f"\n\nYou wrote meanwhile: {self.heard.pop(0)}\n\n")

    def receive(self, seconds):
        """Return the next message; {} when none comes in time, None at the end."""
        until = None if seconds is None else time.monotonic() + seconds
        while b"\n" not in self.buffer:
            left = None if until is None else max(0, until - time.monotonic())
            if not select.select([0], [], [], left)[0]:
                return {}
            data = os.read(0, 65536)
            if not data:
                return None
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError:
            return {}
        return message if isinstance(message, dict) else {}


class Failure(Exception):
    """Raised when the demo is asked to fail."""


def say(**message):
    """Print one message."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    Demo(sys.argv[2], is_resumed=sys.argv[1] == "resume").run()
