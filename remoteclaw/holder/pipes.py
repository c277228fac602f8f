"""The holder's mode `pipes`: a CLI whose pipes a client uses, or which is parked.

This module runs in the holder's process only (`program.py`).
The holder ends the CLI's tree when the deadline passes without a beat, when a client's connection
ends without PARK, and, while the CLI is parked, some time after the last writer of the lifeline is
gone.

The protocol, version 1:

    client                                    holder
    START 1 pipes <bytes>\\n<fields>           HELLO 1 pipes <pid> <state bytes> <output bytes>\\n…
                                                 with the CLI's stdin, stdout and stderr attached
                                              or FAILED <errno>
    BEAT <deadline>
    PARK <epoch> <seconds> <bytes>\\n<state>   PARKED
    END                                       ENDED
    ATTACH 1 <epoch> <key> <deadline>         HELLO …, GONE or DENIED
                                              EXIT <status> when the CLI has ended by itself
"""

import os
import select
from _operator import _compare_digest  # hmac.compare_digest without importing hmac

from program import HANDSHAKE_S, MAX_BODY_BYTES, PROTOCOL, TICK_S, Holder, _signal, now

#: The maximum output of a parked CLI, in bytes; a CLI with more is ended.
MAX_PARKED_BYTES = 1024 * 1024


class PipesHolder(Holder):
    """A holder that hands the CLI's pipes to one client at a time, or parks the CLI."""

    def __init__(self, starter, fields):
        super().__init__(starter, fields)
        starter.max_body_bytes = MAX_BODY_BYTES
        self.state, self.output = b"", bytearray()
        self.is_unwanted = False
        _signal.signal(_signal.SIGUSR1, self.on_unwanted)

    def start(self):
        """Start the CLI with three pipes, and hand them to the first client."""
        child_in, self.stdin = os.pipe2(os.O_CLOEXEC)
        self.stdout, child_out = os.pipe2(os.O_CLOEXEC)
        self.stderr, child_err = os.pipe2(os.O_CLOEXEC)
        self.pipes = (child_in, child_out, child_err)
        self.launch()
        for descriptor in self.pipes:
            os.close(descriptor)
        for descriptor in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(descriptor, False)
        self.hello()

    def take_descriptors(self):
        """Make the pipes this child's standard input, output and error, in a new session."""
        os.setsid()
        for target, source in enumerate(self.pipes):
            os.dup2(source, target)

    def hello(self):
        """Send HELLO with the pipes, the last client's state, and the output since then."""
        head = f"HELLO {PROTOCOL} pipes {self.cli} {len(self.state)} {len(self.output)}\n"
        body = head.encode() + self.state + bytes(self.output)
        self.attached.send(body, (self.stdin, self.stdout, self.stderr))
        self.output.clear()

    # -- the loop ------------------------------------------------------------------------------

    def run(self):
        """Serve clients until the CLI has to end."""
        while True:
            self.wait()
            self.reap()
            self.accept()
            if self.attached:
                self.serve()
            for stranger in list(self.strangers):
                self.serve_stranger(stranger)
            if self.attached:
                self.is_unwanted = False  # an agent at work is never ended to make room
            else:
                self.collect()
                self.check_lifeline()
                if self.is_unwanted:
                    self.end()
            if now() > self.deadline:
                self.end()

    def wait(self):
        """Wait for an event, at most `TICK_S`."""
        poll = select.poll()
        peers = [*self.strangers, *([self.attached] if self.attached else [])]
        for readable in (self.wake_read, self.listener, *(peer.sock for peer in peers)):
            poll.register(readable, select.POLLIN)
        if not self.attached:
            if self.lifeline is not None and self.lifeless_since is None:
                poll.register(self.lifeline, 0)  # POLLHUP is always reported
            poll.register(self.stdout, select.POLLIN)
            poll.register(self.stderr, select.POLLIN)
        poll.poll(max(0.0, min(TICK_S, self.deadline - now())) * 1000 + 1)

    def on_exit(self):
        """Send the client EXIT, because the CLI has ended by itself, and end its tree."""
        if self.attached:
            self.attached.send(b"EXIT %d\n" % self.status)
        self.end()

    def serve(self):
        """Handle the attached client's messages. Its close without PARK ends the CLI."""
        peer = self.attached
        peer.receive()
        while message := peer.take():
            words, body = message
            if words[0] == "BEAT":
                self.deadline = float(words[1])
            elif words[0] == "PARK" and int(words[1]) == self.epoch:
                self.state = body
                self.deadline = now() + float(words[2])
                self.attached = None
                for descriptor in (self.stdout, self.stderr):
                    os.set_blocking(descriptor, False)  # the client may have changed this flag
                self.note_parked()
                peer.send(b"PARKED\n")
                self.strangers.append(peer)  # it attaches again if a message has arrived
                return
            elif words[0] == "END":
                self.end(peer)
        if peer.is_closed:
            self.end()

    def serve_stranger(self, stranger):
        """Attach a stranger that sends ATTACH with the key and a new epoch; deny any other."""
        stranger.receive()
        message = stranger.take()
        if message:
            epoch, deadline = self.credentials(*message[0])
            if epoch < self.epoch:
                stranger.send(b"DENIED\n")
                stranger.is_closed = True
            elif self.attached:
                # The older client may be frozen, and still write to the pipes, which can't be taken
                # back. So the CLI is ended, and the newer client starts another one.
                self.end(stranger, b"GONE\n")
            else:
                self.epoch, self.deadline = epoch, deadline
                self.strangers.remove(stranger)
                stranger.max_body_bytes = MAX_BODY_BYTES
                self.attached = stranger
                self.note_attached()
                self.hello()
                return
        if stranger.is_closed or now() > stranger.since + HANDSHAKE_S:
            stranger.sock.close()
            self.strangers.remove(stranger)

    def note_parked(self):
        """Make the file `parked`; its age is the time for which the agent waits (`runs.py`)."""
        path = os.fsdecode(self.run_dir) + "/parked"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))

    def note_attached(self):
        """Remove the file `parked`."""
        try:
            os.unlink(os.fsdecode(self.run_dir) + "/parked")
        except OSError:
            pass

    def on_unwanted(self, _number, _frame):
        """Note SIGUSR1, a request to make room; `run()` ends the agent if it is parked."""
        self.is_unwanted = True

    def credentials(self, word="", version="", epoch="", key="", deadline="", *_):
        """Return the epoch and the deadline of ATTACH; the epoch -1 if it is invalid."""
        if word != "ATTACH" or version != PROTOCOL or not _compare_digest(key.encode(), self.key):
            return -1, 0.0
        try:
            return int(epoch), float(deadline)
        except ValueError:
            return -1, 0.0

    def collect(self):
        """Read the output of a parked CLI, for the next client; end the CLI if it is too long."""
        for descriptor in (self.stdout, self.stderr):
            try:
                data = os.read(descriptor, 65536)
            except BlockingIOError:
                continue
            if not data:  # the CLI has closed its output
                self.end()
            if descriptor == self.stdout:  # standard error is read so that the CLI doesn't block
                self.output += data
        if len(self.output) > MAX_PARKED_BYTES:
            self.end()

    def check_lifeline(self):
        """End a parked CLI if the lifeline has had no writer for `leave_s`.

        An attached CLI ends with its client, which ends with that writer. If the CLI ended first,
        the client would tell the person that the agent has died.
        """
        if self.lifeline is None:
            return
        try:
            os.read(self.lifeline, 1)
        except BlockingIOError:
            self.lifeless_since = None
            return
        self.lifeless_since = self.lifeless_since or now()
        if now() >= self.lifeless_since + self.leave_s:
            self.end()

    def end(self, client=None, message=b"ENDED\n"):
        """End the CLI's tree, send `client` a last message, and exit."""
        self.end_tree()
        self.leave(client, message)
