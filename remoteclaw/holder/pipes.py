"""The holder's mode `pipes`: one CLI whose pipes are passed on, or that is parked.

Runs in the holder's process and is imported there alone (`program.py`).
The CLI's tree is ended when beats stop coming, when a client's connection ends without PARK, and,
parked, when its time is over or the process that keeps the lifeline is gone.

The wire, version 1:

    client                                    holder
    START 1 pipes <bytes>\\n<fields>           HELLO 1 pipes <pid> <state bytes> <output bytes>\\n…
                                                 with the CLI's stdin, stdout and stderr attached
                                              or FAILED <errno>
    BEAT <deadline>
    PARK <epoch> <seconds> <bytes>\\n<state>   PARKED
    END                                       ENDED
    ATTACH 1 <epoch> <key> <deadline>         HELLO …, GONE or DENIED
                                              EXIT <status> when the CLI ended by itself
"""

import os
import select
from _operator import _compare_digest  # hmac.compare_digest without importing hmac

from program import BODY_BYTES, HANDSHAKE_S, PROTOCOL, TICK_S, Holder, _signal, now

#: The most output of a parked CLI, in bytes: one that prints more is ended.
RING_BYTES = 1024 * 1024


class PipesHolder(Holder):
    """An agent whose pipes are passed to one client at a time, or that is parked."""

    def __init__(self, starter, fields):
        super().__init__(starter, fields)
        starter.most = BODY_BYTES
        self.state, self.ring = b"", bytearray()
        self.is_unwanted = False
        _signal.signal(_signal.SIGUSR1, self.on_unwanted)

    def start(self):
        """Start the CLI with three pipes; answer the starter."""
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
        """Make the pipes the standard input, output and error of a session of its own."""
        os.setsid()
        for target, source in enumerate(self.pipes):
            os.dup2(source, target)

    def hello(self):
        """Hand the pipes over, with what the last client left and the CLI said since."""
        head = f"HELLO {PROTOCOL} pipes {self.cli} {len(self.state)} {len(self.ring)}\n"
        body = head.encode() + self.state + bytes(self.ring)
        self.attached.send(body, (self.stdin, self.stdout, self.stderr))
        self.ring.clear()

    # -- the loop ------------------------------------------------------------------------------

    def run(self):
        """Serve clients until the agent has to end."""
        while True:
            self.wait()
            self.reap()
            self.accept()
            if self.attached:
                self.serve()
            for stranger in list(self.strangers):
                self.meet(stranger)
            if self.attached:
                self.is_unwanted = False  # an agent at work is never ended for another's sake
            else:
                self.collect()
                self.check_lifeline()
                if self.is_unwanted:
                    self.end()
            if now() > self.deadline:
                self.end()

    def wait(self):
        """Sleep until something happens, a second at most."""
        poll = select.poll()
        peers = [*self.strangers, *([self.attached] if self.attached else [])]
        for readable in (self.wake_read, self.listener, *(peer.sock for peer in peers)):
            poll.register(readable, select.POLLIN)
        if not self.attached:
            if self.lifeline is not None:
                poll.register(self.lifeline, 0)  # POLLHUP is always reported
            poll.register(self.stdout, select.POLLIN)
            poll.register(self.stderr, select.POLLIN)
        poll.poll(max(0.0, min(TICK_S, self.deadline - now())) * 1000 + 1)

    def on_exit(self):
        """Tell that the CLI has ended by itself."""
        if self.attached:
            self.attached.send(b"EXIT %d\n" % self.status)
        self.end()

    def serve(self):
        """Obey the attached client; without PARK, its end is the agent's end."""
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
                    os.set_blocking(descriptor, False)  # shared with the last client
                self.note_parked()
                peer.send(b"PARKED\n")
                self.strangers.append(peer)  # it may attach again: a message came meanwhile
                return
            elif words[0] == "END":
                self.end(tell=peer)
        if peer.is_closed:
            self.end()

    def meet(self, stranger):
        """Let a client attach (or end the agent) if it has the key."""
        stranger.receive()
        message = stranger.take()
        if message:
            epoch, deadline = self.credentials(*message[0])
            if epoch < self.epoch:
                stranger.send(b"DENIED\n")
                stranger.is_closed = True
            elif self.attached:
                # A descriptor that was handed out can't be taken back: the older client, frozen
                # perhaps, may yet write to the CLI. So the CLI goes; the newcomer starts another.
                self.end(tell=stranger, word=b"GONE\n")
            else:
                self.epoch, self.deadline = epoch, deadline
                self.strangers.remove(stranger)
                stranger.most = BODY_BYTES
                self.attached = stranger
                self.note_attached()
                self.hello()
                return
        if stranger.is_closed or now() > stranger.since + HANDSHAKE_S:
            stranger.sock.close()
            self.strangers.remove(stranger)

    def note_parked(self):
        """Leave a file whose age says since when the agent waits (`runs.py`)."""
        path = os.fsdecode(self.run_dir) + "/parked"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))

    def note_attached(self):
        """Remove that file."""
        try:
            os.unlink(os.fsdecode(self.run_dir) + "/parked")
        except OSError:
            pass

    def on_unwanted(self, _number, _frame):
        """Remember that the host wants the room: the loop knows whether the agent is parked."""
        self.is_unwanted = True

    def credentials(self, word="", version="", epoch="", key="", deadline="", *_):
        """Return the epoch and deadline of an ATTACH with the key; of anything else, no epoch."""
        if word != "ATTACH" or version != PROTOCOL or not _compare_digest(key.encode(), self.key):
            return -1, 0.0
        try:
            return int(epoch), float(deadline)
        except ValueError:
            return -1, 0.0

    def collect(self):
        """Keep the output of a parked CLI for the next client; end it when it prints too much."""
        for descriptor in (self.stdout, self.stderr):
            try:
                data = os.read(descriptor, 65536)
            except BlockingIOError:
                continue
            if not data:  # it closed its own output, for good
                self.end()
            if descriptor == self.stdout:  # errors are read so that the CLI doesn't block on them
                self.ring += data
        if len(self.ring) > RING_BYTES:
            self.end()

    def check_lifeline(self):
        """End a parked agent when the process at the other end of the lifeline is gone.

        An attached one ends with its client, which the same event kills: if it ended first, its
        client would tell the person that the agent has died.
        """
        if self.lifeline is None:
            return
        try:
            if not os.read(self.lifeline, 1):
                self.end()
        except BlockingIOError:
            pass

    def end(self, tell=None, word=b"ENDED\n"):
        """End the CLI's tree and leave for good."""
        self.end_tree()
        self.leave(tell, word)
