"""The demo agent's program: an agent CLI without a model, for users who have no CLI installed.

It reads and writes one JSON object per line.

Input: `{"type": "turn", "prompt": …}`, `{"type": "interrupt"}`, and during a turn
`{"type": "steer", "id": …, "prompt": …}`, which is answered with `steered`, or after the turn with
`refused`, and `{"type": "aside", "id": …, "prompt": …}`, which is answered with an `aside` of the
same id, with `text` or `error`.

Output: `text`, `thinking`, `tool_use`, `tool_result`, and exactly one `done` for each turn.

It runs as `python -I -S`, so it uses only the standard library and nothing of RemoteClaw.
"""

import json
import os
import select
import sys
import time

#: The pause after each word, in seconds: long enough to show that the text is streamed.
PAUSE_S = 0.004

ABOUT = """\
This is RemoteClaw's demo agent. **No model is behind it**: it answers with fixed words, so that \
you can see how a message travels. Install an agent CLI, such as `claude`, and it takes my place.

You wrote {count} characters, and this is message {number} of our conversation. \
My one tool looked at my workspace and found this:

```text
{listing}
```

Send `slow` to watch me count and to stop me, `long` for an answer in several parts, \
`file` to get one from me, `memory` for what you said before, or `fail` for a failure.

Send `crash` to see what happens when an agent dies."""

#: The name of the file that the message `file` creates.
FILE = "hello-from-the-demo.txt"


class Interrupted(Exception):
    """Raised when the turn is interrupted."""


class Demo:
    """One conversation, stored in a file so that it survives this process."""

    def __init__(self, session_id, is_resumed):
        self.file = os.path.join(".demo-agent", f"{session_id}.json")
        self.messages = []
        self.is_lost = False
        self.buffer = b""
        self.steered = []
        """Messages that were sent during the turn and are not answered yet."""
        try:
            with open(self.file, encoding="utf-8") as file:
                self.messages = json.load(file)
        except (OSError, ValueError):
            self.is_lost = is_resumed

    def run(self):
        """Answer until standard input ends."""
        while (message := self.receive(None)) is not None:
            if message.get("type") == "turn":
                self.turn(str(message.get("prompt", "")))
            elif message.get("type") == "steer":
                send(type="refused", id=message.get("id"))
            elif message.get("type") == "aside":
                self.aside(message)

    def turn(self, prompt):
        """Answer one message."""
        if self.is_lost:
            send(type="done", error="No conversation found: the demo's file is gone")
            return
        self.steered = []
        try:
            self.read_header(prompt)
            self.answer(self.store(prompt).strip())
            self.answer_steered()
        except Interrupted:
            send(type="done", aborted=True)
        except DemoFailure as failure:
            send(type="done", error=str(failure))
        else:
            send(type="done")

    def read_header(self, prompt):
        """Describe the attachments, and add the earlier conversation, both from the first line."""
        header = prompt.partition("\n")[0]
        try:
            details = json.loads(header.removeprefix("[remoteclaw ").removesuffix("]"))
        except ValueError:
            return
        before = details.get("conversation_before", [])
        self.messages += [note["said"] for note in before if "said" in note]
        for message in details.get("messages", [details]):
            for file in message.get("attachments", []):
                if "path" in file:
                    size = os.path.getsize(file["path"])
                    self.stream(f"I have `{file['name']}` ({file['type']}, {size} bytes).\n\n")

    def store(self, prompt):
        """Store a message before it is answered, because this process may be killed in between."""
        # The first line is RemoteClaw's header, about the writer and the time.
        text = prompt.split("\n\n", 1)[-1] if prompt.startswith("[remoteclaw ") else prompt
        self.messages.append(text)
        folder = os.path.dirname(self.file)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(os.path.join(folder, ".gitignore"), "w", encoding="utf-8") as file:
            file.write("*\n")  # the workspace may be a repository of the user
        draft = self.file + ".new"
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(self.messages, file)
        os.replace(draft, self.file)
        return text

    def answer(self, text):
        """Do what a message asks for."""
        word = text.lower()
        if word == "slow":
            for number in range(1, 61):
                self.stream(f"{number} ")
                self.pause(0.5)
                self.answer_steered()
        elif word == "long":
            for number in range(1, 41):
                self.stream(f"## Part {number}\n\n" + "All work and no play. " * 12 + "\n\n")
        elif word == "file":
            with open(FILE, "w", encoding="utf-8") as file:
                file.write("The demo agent made this file for you.\n")
            self.stream(f"Here you are. [[attach:{FILE}]]")
        elif word == "memory":
            said = "".join(f"\n- {text}" for text in self.messages[:-1])
            self.stream(f"You said before:\n{said}" if said else "You said nothing before.")
        elif word == "fail":
            self.stream("I try, and then… ")
            raise DemoFailure("the demo fails when asked to")
        elif word == "crash":
            self.stream("Goodbye… ")
            os._exit(3)
        else:
            self.stream(
                ABOUT.format(
                    count=len(text), number=len(self.messages), listing=self.list_workspace()
                )
            )

    def list_workspace(self):
        """Report a tool call that lists the workspace; return its output."""
        send(type="tool_use", id="look-1", name="list_workspace", input={"path": os.getcwd()})
        names = sorted(name for name in os.listdir(".") if not name.startswith("."))[:10]
        listing = "\n".join(names) or "(an empty directory)"
        send(type="tool_result", id="look-1", output=listing)
        return listing

    def stream(self, text):
        """Send a text word by word."""
        words = text.split(" ")
        for position, word in enumerate(words):
            send(type="text", text=word if position == len(words) - 1 else word + " ")
            self.pause(PAUSE_S)

    def pause(self, seconds):
        """Wait for `seconds`, or until a message arrives, and handle that message."""
        message = self.receive(seconds) or {}
        if message.get("type") == "interrupt":
            raise Interrupted
        if message.get("type") == "aside":
            self.aside(message)
        if message.get("type") == "steer":
            self.steered.append(self.store(str(message.get("prompt", ""))).strip())
            send(type="steered", id=message.get("id"))

    def aside(self, message):
        """Answer an aside with a fixed text, or with a verdict that its first word selects."""
        header, _, asked = str(message.get("prompt", "")).partition("\n\n")
        key = header.partition("[[answered:")[2].partition("]]")[0]
        verdict = {"stop": "stop", "also": "work"}.get(asked.strip().lower().partition(" ")[0], "")
        text = "" if verdict else "I'm still working on it."
        tag = f"[[{verdict or 'answered'}:{key}]]"
        send(type="aside", id=message.get("id"), text=f"{text}\n{tag}")

    def answer_steered(self):
        """Answer the messages that were sent during the turn."""
        while self.steered:
            self.stream(f"\n\nYou wrote meanwhile: {self.steered.pop(0)}\n\n")

    def receive(self, seconds):
        """Return the next message; {} if none arrives within `seconds`, None at the end of input.

        Without `seconds`, wait forever.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while b"\n" not in self.buffer:
            remaining = None if deadline is None else max(0, deadline - time.monotonic())
            if not select.select([0], [], [], remaining)[0]:
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


class DemoFailure(Exception):
    """Raised when the demo is asked to fail."""


def send(**message):
    """Write one message to standard output."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    Demo(sys.argv[2], is_resumed=sys.argv[1] == "resume").run()
