"""The holder's mode `pty`: a CLI in a pseudo-terminal, whose output clients follow.

This module runs in the holder's process only (`program.py`), and only for terminals.
The master end of the terminal stays in this process and is read at once, because a program whose
output nobody reads would block in the middle of a turn. Each byte of output has an offset; the last
1 MiB is kept. The client that attached last gets the output. What it reads too slowly is skipped,
so that the program never waits for it.

The protocol, version 1, in the form that `program.py` describes:

    client                                    holder
    START 1 pty <bytes>\\n<fields>             HELLO 1 pty <pid> <holder> <cols> <rows> <waiting>
      with a descriptor of the directory        <picture offset> <offset> <end> <bytes>\\n<picture>
    ATTACH 1 pty <key>                        HELLO …, or DENIED
    IN <bytes>\\n<input>                       TAKEN <bytes>: the program has read so much input
    SIZE <cols> <rows>                        OUT <offset> <bytes>\\n<output>
    KEEP <offset> <bytes>\\n<picture>          EXIT [<status>] when the CLI has ended
    BEAT <deadline>                           REPLACED when another client has attached

    BEAT 1 pty <key> <deadline>               ALIVE
    END 1 pty <key> <grace> <0|1>             ENDED when no process is left; 1: ESC first

A client that sends anything else is disconnected; the program continues.
"""

import binascii
import fcntl
import os
import select
import time
from _operator import _compare_digest  # hmac.compare_digest without importing hmac

from output import RING_BYTES, Pump, Ring
from program import GRACE_S, HANDSHAKE_S, PROTOCOL, TICK_S, Holder, _signal, now
from tree import remove_tree

#: The maximum number of reads of output before clients are served.
MAX_READS = 16
#: After a read of less than this, in bytes, there is mostly no more output, and another read would
#: delay the echo of a key.
SHORT_BYTES = 1024
#: The maximum size of the input that waits for the program, in bytes: above it, a client stops
#: sending.
MAX_INPUT_BYTES = 64 * 1024
#: The maximum number of replaced clients that have not read REPLACED yet.
MAX_LEAVING = 4
#: How long to wait at the end for a client that doesn't read, in seconds.
FAREWELL_S = 1.0
#: The time that ESC has to interrupt a turn, in seconds: the tools of some CLIs survive any other
#: end.
INTERRUPT_S = 2.0
#: The maximum grace that END may ask for, in seconds.
MAX_GRACE_S = 60.0
#: How much of the last output is written to a file when the terminal has ended, in bytes.
TAIL_BYTES = 64 * 1024

#: The requests that a stranger can send with the key, with the number of words after the key.
KEYED_REQUESTS = {"ATTACH": 0, "BEAT": 1, "END": 2}

TIOCSWINSZ = 0x5414


class TerminalHolder(Holder):
    """A holder that runs the CLI in a terminal."""

    def __init__(self, starter, fields):
        self.ended, cols, rows, idle_s, *common = fields
        super().__init__(starter, common)
        _signal.signal(_signal.SIGUSR1, _signal.SIG_IGN)  # a terminal makes no room for agents
        self.size, self.idle_s = (int(cols), int(rows)), float(idle_s)
        self.directory = (starter.descriptors or [None])[0]
        self.ring, self.picture, self.picture_offset = Ring(), b"", 0
        self.input = bytearray()
        self.pump, self.leaving = None, []
        self.active = now()
        self.reason = ""

    def start(self):
        """Start the CLI in a terminal of the requested size, and greet the first client."""
        # The slave end stays open here: once all are closed, reads of the master end fail.
        self.master, self.slave = os.openpty()
        os.set_blocking(self.master, False)
        self.resize(*self.size)
        self.launch()
        if self.directory is not None:
            os.close(self.directory)
        self.hello(self.attached)

    def take_descriptors(self):
        """Make the terminal this child's controlling terminal, in a new session."""
        os.login_tty(self.slave)

    def enter_directory(self):
        """Change to the CLI's directory: by its descriptor, as the path may lead elsewhere."""
        if self.directory is None:
            super().enter_directory()
        else:
            os.fchdir(self.directory)

    def hello(self, client):
        """Send a client HELLO, and from now on the output, beginning with that which is kept."""
        self.pump = Pump(client, self.ring.start)
        words = (PROTOCOL, "pty", self.cli, self.process(), *self.size, len(self.input))
        words += (self.picture_offset, self.ring.start, self.ring.end, len(self.picture))
        self.pump.pending += f"HELLO {' '.join(map(str, words))}\n".encode() + self.picture
        self.pump.flush(self.ring)

    def process(self):
        """Return this process in the form of `host.process.identity()`."""
        pid, started, namespace = self.identity
        return f"pid {pid} {namespace.decode()} {started.decode()}"

    # -- the loop ------------------------------------------------------------------------------

    def run(self):
        """Serve the program and the clients until the terminal has to end."""
        try:
            while True:
                ready = self.wait()
                if self.wake_read in ready:
                    self.reap()
                if self.master in ready:
                    self.drain()
                if self.listener.fileno() in ready:
                    self.accept()
                if self.pump and self.pump.client.sock.fileno() in ready:
                    self.serve()
                for stranger in list(self.strangers):
                    self.serve_stranger(stranger)
                self.check(ready)  # before the program gets input
                self.feed()
                self.flush()
        except SystemExit:  # SIGTERM
            self.finish("asked")

    def wait(self):
        """Wait for events, at most `TICK_S`; return the descriptors that have one.

        To try all descriptors would take as long as a key.
        """
        poll = select.poll()
        for readable in (self.wake_read, self.listener, *(peer.sock for peer in self.strangers)):
            poll.register(readable, select.POLLIN)
        poll.register(self.master, select.POLLIN | (select.POLLOUT if self.input else 0))
        if self.pump:
            wants = select.POLLOUT if self.pump.wants(self.ring) else 0
            poll.register(self.pump.client.sock, select.POLLIN | wants)
        for pump in self.leaving:
            poll.register(pump.client.sock, select.POLLOUT)
        if self.lifeline is not None:
            poll.register(self.lifeline, 0)  # POLLHUP is always reported
        events = poll.poll(max(0.0, min(TICK_S, self.deadline - now())) * 1000 + 1)
        return {descriptor for descriptor, _ in events}

    def drain(self):
        """Read the program's output; return whether there may be more."""
        try:
            for _ in range(MAX_READS):
                count = self.ring.read_from(self.master)
                self.active = now()
                if count < SHORT_BYTES:
                    return count > 0
        except OSError:  # there is no output now, or the CLI has just ended
            return False
        return True

    def feed(self):
        """Write as much input to the program as it reads without blocking."""
        try:
            while self.input:
                taken = os.write(self.master, self.input[:4096])
                del self.input[:taken]
                if self.pump:
                    self.pump.taken += taken
        except OSError:
            pass

    def flush(self):
        """Send the clients as much as they read without blocking."""
        if self.pump:
            self.pump.flush(self.ring)
            if self.pump.client.is_closed:
                self.pump.client.sock.close()
                self.pump, self.active = None, now()
        for pump in list(self.leaving):
            pump.flush(self.ring)
            if not pump.pending:
                pump.client.sock.close()
                self.leaving.remove(pump)

    def check(self, ready):
        """End the terminal if its lifeline is closed, its deadline has passed, or it is idle."""
        if self.lifeline in ready:
            self.finish("lifeline")
        if now() > self.deadline:
            self.finish("deadline")
        if self.pump is None and now() > self.active + self.idle_s:
            self.finish("idle")

    # -- clients -------------------------------------------------------------------------------

    def serve(self):
        """Handle the messages of the attached client."""
        client = self.pump.client
        client.receive()
        try:
            while not client.is_closed and (message := client.take()):
                self.handle_message(*message)
        except (ValueError, IndexError, TypeError):
            client.is_closed = True

    def handle_message(self, words, body):
        """Handle a message; raises ValueError, IndexError or TypeError if it is invalid."""
        if words[0] == "IN" and len(self.input) < MAX_INPUT_BYTES:
            self.input += body
            self.active = now()
        elif words[0] == "SIZE":
            self.resize(*map(number, words[1:]))
        elif words[0] == "KEEP":
            self.keep(number(words[1]), body)
        elif words[0] == "BEAT":
            self.deadline = moment(words[1])
        else:
            raise ValueError

    def resize(self, cols, rows):
        """Set the size of the terminal's window, and notify the program."""
        if not (1 <= cols <= 1000 and 1 <= rows <= 1000):
            raise ValueError
        window = b"".join(size.to_bytes(2, "little") for size in (rows, cols, 0, 0))
        fcntl.ioctl(self.slave, TIOCSWINSZ, window)
        if self.cli and (cols, rows) == self.size:  # the kernel notifies only of a new size
            try:
                os.killpg(os.tcgetpgrp(self.master), _signal.SIGWINCH)
            except OSError:
                pass
        self.size = (cols, rows)

    def keep(self, offset, picture):
        """Keep a picture of the screen, and discard the output before its offset."""
        if self.picture_offset <= offset <= self.ring.end:
            self.picture, self.picture_offset = picture, offset
            self.ring.start = max(self.ring.start, offset)

    def serve_stranger(self, stranger):
        """Handle the request of a stranger, which needs the key, and disconnect it.

        A stranger that attaches stays connected.
        """
        stranger.receive()
        message = stranger.take()
        if message:
            words = message[0]
            if not self.is_request(*words):
                stranger.send(b"DENIED\n")
            elif words[0] == "ATTACH":
                self.strangers.remove(stranger)
                self.replace(stranger)
                self.serve()  # the messages that arrived with ATTACH
                return
            else:
                stranger.send(self.answer(stranger, *words[4:]))
        if message or stranger.is_closed or now() > stranger.since + HANDSHAKE_S:
            stranger.sock.close()
            self.strangers.remove(stranger)

    def is_request(self, word="", version="", mode="", key="", *more):
        """Whether a message is a valid request with the key, for a terminal of this version."""
        words = KEYED_REQUESTS.get(word)
        is_valid = (version, mode) == (PROTOCOL, "pty") and words == len(more)
        return _compare_digest(key.encode(), self.key) and is_valid

    def answer(self, stranger, deadline, interrupt=None):
        """Handle BEAT with its deadline, or END with its grace; return the answer."""
        try:
            seconds = moment(deadline)
        except ValueError:
            return b"DENIED\n"
        if interrupt is not None:
            self.finish("asked", min(seconds, MAX_GRACE_S), interrupt == "1", stranger)
        self.deadline = seconds
        return b"ALIVE\n"

    def replace(self, client):
        """Attach a client in place of the attached one, which gets REPLACED."""
        if self.pump:
            self.pump.pending += b"REPLACED\n"
            self.pump.is_leaving = True
            self.leaving.append(self.pump)
            if len(self.leaving) > MAX_LEAVING:
                self.leaving.pop(0).client.sock.close()
        self.hello(client)

    # -- the end -------------------------------------------------------------------------------

    def on_exit(self):
        """End the tree of a CLI that has ended by itself."""
        self.finish("exited")

    def end(self):
        """End the terminal after an error of the holder."""
        self.finish("error")

    def finish(self, reason, grace_s=GRACE_S, interrupt=False, client=None):
        """End the CLI's tree, write the file about the end, and exit.

        With `interrupt`, the CLI gets ESC first. `client` is a stranger that waits for ENDED.
        """
        _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
        self.reason = self.reason or reason
        if interrupt and self.status is None:
            self.input[:0] = b"\x1b"
            self.feed()
            until = now() + INTERRUPT_S
            while now() < until and self.status is None and self.has_children():
                self.pause(0.02)
        self.end_tree(grace_s)
        for _ in range(RING_BYTES // SHORT_BYTES):  # a process that can't be killed may write on
            if not self.drain():
                break
        self.write_ended()
        remove_tree(os.fsdecode(self.run_dir))
        self.say_goodbye()
        if client:
            client.send(b"ENDED\n")
        os._exit(0)

    def pause(self, seconds):
        """Wait while the tree ends, and read its output, so that no process blocks on it."""
        until = now() + seconds
        poll = select.poll()
        poll.register(self.master, select.POLLIN)
        while (left := until - now()) > 0:
            if self.status is not None or not poll.poll(left * 1000 + 1) or not self.drain():
                time.sleep(max(0.0, min(until - now(), 0.005)))
            self.flush()

    def write_ended(self):
        """Write the exit status, the last picture and the last output to the file `ended`."""
        status = "null" if self.status is None else self.status
        tail = b""
        at = max(self.ring.start, self.ring.end - TAIL_BYTES)
        while piece := self.ring.piece(at + len(tail)):
            tail += piece
        text = (
            f'{{"status": {status}, "reason": "{self.reason}", "offset": {self.ring.end}, '
            f'"picture": "{base64(self.picture)}", "pictureOffset": {self.picture_offset}, '
            f'"tail": "{base64(tail)}", "cols": {self.size[0]}, "rows": {self.size[1]}, '
            f'"at": {int(time.time())}}}\n'
        )
        new = self.ended + b".new"
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
            os.rename(new, self.ended)
        except OSError:  # such as a full disk
            pass

    def say_goodbye(self):
        """Send the attached client the rest of the output, and EXIT."""
        if self.pump is None:
            return
        poll = select.poll()
        poll.register(self.pump.client.sock, select.POLLOUT)
        has_exit = False
        while not self.pump.client.is_closed and poll.poll(FAREWELL_S * 1000):
            self.pump.flush(self.ring)
            if not self.pump.wants(self.ring):
                if has_exit:
                    return
                status = b"" if self.status is None else b" %d" % self.status
                self.pump.pending += b"EXIT%s\n" % status
                has_exit = True


def number(word):
    """Return the number that a word of digits is; raises ValueError for another word."""
    if not word.isdigit():
        raise ValueError
    return int(word)


def moment(word):
    """Return a number of seconds; raises ValueError if it is negative, infinite or no number."""
    seconds = float(word)
    if not 0 <= seconds < 1e12:
        raise ValueError
    return seconds


def base64(data):
    """Return bytes in base64, for JSON."""
    return binascii.b2a_base64(data, newline=False).decode()
