"""The holder's mode `pty`: one CLI in a pseudo-terminal, whose screen others come and go to see.

Runs in the holder's process and is imported there alone (`program.py`), for terminals only.
The terminal's other end never leaves this process and is read whenever it has something: a program
that nobody reads would stop in mid-turn. Every byte of output has a number, its offset; the last
1 MiB is kept. One client is sent all of it, the newest that asks with the key; what it is too slow
for is skipped, so that the program never waits for it.

The wire, version 1, as `program.py` has it:

    client                                    holder
    START 1 pty <bytes>\\n<fields>             HELLO 1 pty <pid> <holder> <cols> <rows> <waiting>
      with a descriptor of the directory        <picture offset> <offset> <end> <bytes>\\n<picture>
    ATTACH 1 pty <key>                        HELLO …, or DENIED
    IN <bytes>\\n<input>                       TAKEN <bytes>: so much of what waited the program has
    SIZE <cols> <rows>                        OUT <offset> <bytes>\\n<output>
    KEEP <offset> <bytes>\\n<picture>          EXIT [<status>] when the CLI has ended
    BEAT <deadline>                           REPLACED when another client has attached

    BEAT 1 pty <key> <deadline>               ALIVE
    END 1 pty <key> <grace> <0|1>             ENDED when nothing is left; 1: ESC first

Who sends anything else is disconnected; the program works on.
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

#: The most output that is read before clients are served, in reads.
READS = 16
#: A read of less than this, in bytes, is mostly all that there is: to look again costs a key more.
SHORT_BYTES = 1024
#: The input that may wait for the program, in bytes: a client sends no more while so much waits.
INPUT_BYTES = 64 * 1024
#: How many clients that were replaced, and haven't read so yet, are waited for.
LEAVING = 4
#: The longest patience with a client that reads nothing of the end, in seconds.
FAREWELL_S = 1.0
#: The time that ESC has to interrupt a turn, in seconds: tools of some CLIs survive all but this.
INTERRUPT_S = 2.0
#: The longest grace that an END may ask for, in seconds.
MAX_GRACE_S = 60.0
#: How much of the last output stays behind when the terminal has ended, in bytes.
TAIL_BYTES = 64 * 1024

#: What may be asked with the key, and how many words follow it.
FORMS = {"ATTACH": 0, "BEAT": 1, "END": 2}

TIOCSWINSZ = 0x5414


class TerminalHolder(Holder):
    """A CLI in a terminal, until it ends or has to."""

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
        """Start the CLI in a terminal of the size that was asked for; answer the starter."""
        # Its end of the terminal stays open here, too: otherwise reading fails once it is closed.
        self.master, self.slave = os.openpty()
        os.set_blocking(self.master, False)
        self.resize(*self.size)
        self.launch()
        if self.directory is not None:
            os.close(self.directory)
        self.hello(self.attached)

    def take_descriptors(self):
        """Make the terminal that of a session of its own."""
        os.login_tty(self.slave)

    def enter_directory(self):
        """Go where the CLI works: by the descriptor, which nobody can have exchanged."""
        if self.directory is None:
            super().enter_directory()
        else:
            os.fchdir(self.directory)

    def hello(self, client):
        """Make a client the one that is sent the output, beginning with what was kept."""
        self.pump = Pump(client, self.ring.start)
        words = (PROTOCOL, "pty", self.cli, self.process(), *self.size, len(self.input))
        words += (self.picture_offset, self.ring.start, self.ring.end, len(self.picture))
        self.pump.pending += f"HELLO {' '.join(map(str, words))}\n".encode() + self.picture
        self.pump.flush(self.ring)

    def process(self):
        """Return this process as `host.process.identity()` writes it."""
        pid, started, namespace = self.identity
        return f"pid {pid} {namespace.decode()} {started.decode()}"

    # -- the loop ------------------------------------------------------------------------------

    def run(self):
        """Serve the program and clients until it has to end."""
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
                    self.meet(stranger)
                self.check(ready)  # before the program is typed anything
                self.feed()
                self.flush()
        except SystemExit:  # SIGTERM
            self.finish("asked")

    def wait(self):
        """Sleep until something happens, a second at most; return the descriptors where it has.

        To try the others as well would take as long as a key.
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
        found = poll.poll(max(0.0, min(TICK_S, self.deadline - now())) * 1000 + 1)
        return {descriptor for descriptor, _ in found}

    def drain(self):
        """Read what the program has written."""
        try:
            for _ in range(READS):
                count = self.ring.read_from(self.master)
                self.active = now()
                if count < SHORT_BYTES:
                    return count > 0
        except OSError:  # nothing more now, or nothing any more: the CLI has just ended
            return False
        return True

    def feed(self):
        """Give the program what it takes of its input."""
        try:
            while self.input:
                taken = os.write(self.master, self.input[:4096])
                del self.input[:taken]
                if self.pump:
                    self.pump.taken += taken
        except OSError:
            pass

    def flush(self):
        """Send the clients what they take."""
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
        """End a terminal that is not needed any more."""
        if self.lifeline in ready:  # its other end is closed
            self.finish("lifeline")
        if now() > self.deadline:
            self.finish("deadline")
        if self.pump is None and now() > self.active + self.idle_s:
            self.finish("idle")

    # -- clients -------------------------------------------------------------------------------

    def serve(self):
        """Obey the client."""
        client = self.pump.client
        client.receive()
        try:
            while not client.is_closed and (message := client.take()):
                self.obey(*message)
        except (ValueError, IndexError, TypeError):
            client.is_closed = True

    def obey(self, words, body):
        """Do what one message says; raises ValueError if it says nothing."""
        if words[0] == "IN" and len(self.input) < INPUT_BYTES:
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
        """Set the size of the terminal's window, and have the program look at it."""
        if not (1 <= cols <= 1000 and 1 <= rows <= 1000):
            raise ValueError
        window = b"".join(size.to_bytes(2, "little") for size in (rows, cols, 0, 0))
        fcntl.ioctl(self.slave, TIOCSWINSZ, window)
        if self.cli and (cols, rows) == self.size:  # the kernel says only what is new
            try:
                os.killpg(os.tcgetpgrp(self.master), _signal.SIGWINCH)
            except OSError:
                pass
        self.size = (cols, rows)

    def keep(self, offset, picture):
        """Keep a picture of the screen instead of the output before it."""
        if self.picture_offset <= offset <= self.ring.end:
            self.picture, self.picture_offset = picture, offset
            self.ring.start = max(self.ring.start, offset)

    def meet(self, stranger):
        """Do what a client with the key asks; a stranger gets one answer and no time."""
        stranger.receive()
        message = stranger.take()
        if message:
            words = message[0]
            if not self.knows(*words):
                stranger.send(b"DENIED\n")
            elif words[0] == "ATTACH":
                self.strangers.remove(stranger)
                self.replace(stranger)
                self.serve()  # what came along with it
                return
            else:
                stranger.send(self.answer(stranger, *words[4:]))
        if message or stranger.is_closed or now() > stranger.since + HANDSHAKE_S:
            stranger.sock.close()
            self.strangers.remove(stranger)

    def knows(self, word="", version="", mode="", key="", *more):
        """Whether a client has the key, and means a terminal of this version."""
        is_meant = (version, mode) == (PROTOCOL, "pty") and FORMS.get(word) == len(more)
        return _compare_digest(key.encode(), self.key) and is_meant

    def answer(self, stranger, deadline, interrupt=None):
        """Obey a client that doesn't stay: BEAT, or END with its grace."""
        try:
            seconds = moment(deadline)
        except ValueError:
            return b"DENIED\n"
        if interrupt is not None:
            self.finish("asked", min(seconds, MAX_GRACE_S), interrupt == "1", stranger)
        self.deadline = seconds
        return b"ALIVE\n"

    def replace(self, client):
        """Attach a client instead of the one before, which is told."""
        if self.pump:
            self.pump.pending += b"REPLACED\n"
            self.pump.is_leaving = True
            self.leaving.append(self.pump)
            if len(self.leaving) > LEAVING:
                self.leaving.pop(0).client.sock.close()
        self.hello(client)

    # -- the end -------------------------------------------------------------------------------

    def on_exit(self):
        """End what the CLI has left, after it has ended by itself."""
        self.finish("exited")

    def end(self):
        """End after an error of our own."""
        self.finish("error")

    def finish(self, reason, grace_s=GRACE_S, interrupt=False, tell=None):
        """End the CLI and all that it started, leave the last output behind, and exit."""
        _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
        self.reason = self.reason or reason
        if interrupt and self.status is None:
            self.input[:0] = b"\x1b"
            self.feed()
            until = now() + INTERRUPT_S
            while now() < until and self.status is None and self.has_children():
                self.pause(0.02)
        self.end_tree(grace_s)
        for _ in range(RING_BYTES // SHORT_BYTES):  # who can't be ended may yet write
            if not self.drain():
                break
        self.write_ended()
        remove_tree(os.fsdecode(self.run_dir))
        self.say_goodbye()
        if tell:
            tell.send(b"ENDED\n")
        os._exit(0)

    def pause(self, seconds):
        """Wait for the tree to end, and read what it writes meanwhile."""
        until = now() + seconds
        poll = select.poll()
        poll.register(self.master, select.POLLIN)
        while (left := until - now()) > 0:
            if self.status is not None or not poll.poll(left * 1000 + 1) or not self.drain():
                time.sleep(max(0.0, min(until - now(), 0.005)))
            self.flush()

    def write_ended(self):
        """Leave a file for the one who settles this terminal."""
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
        except OSError:  # a disk that is full
            pass

    def say_goodbye(self):
        """Send the client the rest and the end."""
        if self.pump is None:
            return
        poll = select.poll()
        poll.register(self.pump.client.sock, select.POLLOUT)
        said = False
        while not self.pump.client.is_closed and poll.poll(FAREWELL_S * 1000):
            self.pump.flush(self.ring)
            if not self.pump.wants(self.ring):
                if said:
                    return
                status = b"" if self.status is None else b" %d" % self.status
                self.pump.pending += b"EXIT%s\n" % status
                said = True


def number(word):
    """Return what a word of digits says."""
    if not word.isdigit():
        raise ValueError
    return int(word)


def moment(word):
    """Return a number of seconds that is one: not infinite, and not less than nothing."""
    seconds = float(word)
    if not 0 <= seconds < 1e12:
        raise ValueError
    return seconds


def base64(data):
    """Return bytes as JSON can have them."""
    return binascii.b2a_base64(data, newline=False).decode()
