"""The holder: starts one agent CLI, keeps it, and ends its whole tree.

`main()` runs in `python -I -S` with a connected unix socket as standard input, whose other end is
the first client. It has two modes: `pipes.py` passes the CLI's pipes on, `terminal.py` keeps it in
a terminal. What both have in common is here.

The holder is the subreaper of everything that the CLI starts, so nothing can leave its tree.

Little is imported: `import socket, signal, json` would double the 9 ms that a cold start pays for
the holder.

Every message of the wire is one line, for some followed by a body of stated length. A deadline is
in seconds of CLOCK_BOOTTIME, which goes on while a laptop sleeps.
"""

import _signal  # the signal module wraps it in enums, 4 ms
import _socket
import os
import time

from tree import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    descendants,
    namespace,
    prctl,
    raise_oom_score,
    remove_tree,
    signal_all,
    start_time,
)

PROTOCOL = "1"
#: The most of a START or PARK body that is accepted, in bytes: a system prompt is not part of it.
BODY_BYTES = 8 * 1024 * 1024
#: The longest line that is accepted, in bytes; of an unknown peer nothing else is.
LINE_BYTES = 4096
#: The most that is read at once, in bytes: a buffer of more costs 50 µs, also for a single key.
READ_BYTES = 65536
#: The most unknown peers at a time: when more come, the one that has waited longest goes.
STRANGERS = 32
#: The time between SIGTERM and SIGKILL, in seconds; claude needs 0.1.
GRACE_S = 1.0
#: The longest wait for processes that the holder may not signal, in seconds.
FOREIGN_S = 5.0
#: The interval of checks of deadlines, in seconds: poll()'s own timeout does not count suspend.
TICK_S = 1.0
#: The longest wait for the key of an unknown peer, in seconds.
HANDSHAKE_S = 5.0

#: The messages whose last word says how long a body follows them.
WITH_BODY = ("START", "PARK", "IN", "KEEP")


def now():
    """Return seconds that also count the time a machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Client:
    """One connected client: a socket, what arrived on it, and since when."""

    def __init__(self, sock, most=0):
        self.sock = sock
        self.since = now()
        self.most = most
        """The longest body that is accepted, in bytes."""
        self.buffer = b""
        self.descriptors = []
        self.is_closed = False

    def receive(self):
        """Read what there is; remember when the other side has gone."""
        try:
            data = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.add(data)

    def receive_launch(self):
        """Read what there is of a START, and the descriptors that come along."""
        data, ancillary, _, _ = self.sock.recvmsg(262144, 64, _socket.MSG_CMSG_CLOEXEC)
        for _level, _kind, numbers in ancillary:
            for at in range(0, len(numbers), 4):
                self.descriptors.append(int.from_bytes(numbers[at : at + 4], "little"))
        self.add(data)

    def add(self, data):
        """Keep what has arrived; nothing means that the other side has gone."""
        self.is_closed = not data
        self.buffer += data
        if len(self.buffer) > self.most + LINE_BYTES:
            self.is_closed = True

    def take(self):
        """Return the next complete message as (words, body), or None."""
        head, newline, rest = self.buffer.partition(b"\n")
        if not newline:
            return None
        words = head.decode("ascii", "replace").split()
        size = 0
        if words and words[0] in WITH_BODY:
            size = int(words[-1]) if words[-1].isdigit() else BODY_BYTES + 1
            if size > self.most:
                self.is_closed = True
                return None
            if len(rest) < size:
                return None
        self.buffer = rest[size:]
        return words or [""], rest[:size]

    def send(self, data, descriptors=()):
        """Send everything, with the descriptors attached to the first byte."""
        ancillary = []
        if descriptors:
            numbers = b"".join(fd.to_bytes(4, "little") for fd in descriptors)
            ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)]
        self.sock.settimeout(HANDSHAKE_S)
        try:
            while data:
                data = data[self.sock.sendmsg([data], ancillary) :]
                ancillary = []
        except OSError:
            self.is_closed = True
        finally:
            self.sock.setblocking(False)


class Holder:
    """One CLI and all that it starts, until its end: what both modes have in common."""

    def __init__(self, starter, fields):
        key, path, run_dir, lifeline, cwd, epoch, deadline, argc, *rest = fields
        self.key, self.path, self.run_dir = key, path, run_dir
        self.epoch, self.deadline = int(epoch), float(deadline)
        self.attached, self.strangers = starter, []
        self.lifeline = self.open_lifeline(lifeline)
        self.listener = self.listen()
        self.wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.set_wakeup_fd(wake_write)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        self.argv, self.environment = rest[: int(argc)], rest[int(argc) :]
        # Strays carry this mark: if the holder is killed, others recognise what it leaves behind.
        self.identity = (os.getpid(), start_time("self"), namespace())
        self.environment.append(b"REMOTECLAW_HOLDER=%d:%s:%s" % self.identity)
        self.cwd = cwd
        self.status = self.cli = None

    def open_lifeline(self, path):
        """Open the FIFO whose writer must stay alive; None when the operator set none."""
        if not path:
            return None
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.read(descriptor, 1)  # b"" at once without a writer
        except BlockingIOError:
            return descriptor
        except OSError:
            pass
        raise SystemExit("the process that started this agent's worker is gone")

    def listen(self):
        """Return the listening socket, which only this user can reach."""
        previous = os.umask(0o177)
        try:
            listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
            listener.bind(self.path)
        finally:
            os.umask(previous)
        listener.listen(8)
        listener.setblocking(False)
        return listener

    def launch(self):
        """Start the CLI; say so to the starter, and leave, if it can't be executed."""
        failure_read, failure_write = os.pipe2(os.O_CLOEXEC)
        holder = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                self.become_agent(holder)
            except OSError as error:
                os.write(failure_write, b"%d" % error.errno)
            os._exit(127)
        os.close(failure_write)
        failure = os.read(failure_read, 16)
        os.close(failure_read)
        if failure:
            self.leave(self.attached, b"FAILED " + failure + b"\n")
        self.cli = pid

    def become_agent(self, holder):
        """Turn this forked child into the CLI; raises OSError when that can't be done."""
        self.take_descriptors()
        prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)  # the holder itself may be killed
        if os.getppid() != holder:
            os._exit(0)
        # RQ's work-horse ignores SIGINT, Python SIGPIPE and we SIGHUP, and children inherit that.
        for number in _signal.valid_signals():
            if _signal.getsignal(number) == _signal.SIG_IGN:
                _signal.signal(number, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        raise_oom_score()
        self.enter_directory()
        variables = dict(pair.split(b"=", 1) for pair in self.environment)
        os.execve(self.argv[0], self.argv, variables)

    def enter_directory(self):
        """Go where the CLI works."""
        os.chdir(self.cwd)

    def reap(self):
        """Collect ended children; when the CLI is among them, end the rest."""
        try:
            while os.read(self.wake_read, 512):
                pass
        except BlockingIOError:
            pass
        self.has_children()
        if self.status is not None:
            self.on_exit()

    def has_children(self):
        """Reap what has ended and say whether any descendant is left (a subreaper inherits all)."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return True
                if pid == self.cli:
                    self.status = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            return False

    def accept(self):
        """Take new connections; the socket is for this user alone."""
        try:
            descriptor, _ = self.listener._accept()
        except OSError:
            return
        sock = _socket.socket(fileno=descriptor)
        sock.setblocking(False)
        self.strangers.append(Client(sock))
        if len(self.strangers) > STRANGERS:
            self.strangers.pop(0).sock.close()

    def end_tree(self, grace_s=GRACE_S):
        """End the CLI and all that it started: ask, then insist."""
        signal_all(descendants(os.getpid()), _signal.SIGTERM)
        patience = now() + grace_s
        while now() < patience and self.has_children():
            self.pause(0.005)
        pause, since = 0.005, now()
        while self.has_children():
            tree = descendants(os.getpid())
            signal_all(tree, _signal.SIGSTOP)  # all stopped first, none can fork away
            killed = signal_all(tree, _signal.SIGKILL)
            if not killed and now() > since + FOREIGN_S:
                break  # what is left belongs to another user (sudo): init will inherit it
            self.pause(pause)
            pause = min(pause * 2, 1.0)

    def pause(self, seconds):
        """Wait for the tree to end."""
        time.sleep(seconds)

    def leave(self, tell=None, word=b""):
        """Remove the run directory, say goodbye, and exit."""
        remove_tree(os.fsdecode(self.run_dir))
        if tell:
            tell.send(word)
        os._exit(0)


def main():
    """Read the launch data, start the agent and hold it."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    _signal.signal(_signal.SIGTERM, leave_on_signal)
    _signal.signal(_signal.SIGHUP, _signal.SIG_IGN)
    starter = Client(_socket.socket(fileno=os.dup(0)), BODY_BYTES)
    os.set_inheritable(starter.sock.fileno(), False)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    starter.sock.settimeout(HANDSHAKE_S)
    while not (message := starter.take()):
        starter.receive_launch()
        if starter.is_closed:
            raise SystemExit("no launch data arrived")
    starter.sock.setblocking(False)
    words, body = message
    holder = holder_of(words, starter, body.split(b"\0"))
    try:
        holder.start()
        holder.run()
    finally:  # whatever goes wrong in here, the agent must not outlive it
        holder.end()


def holder_of(words, starter, fields):
    """Return the holder that a START asks for; one of an older client names no mode."""
    mode = words[2:-1]  # each starts without the other
    if mode == ["pty"]:
        import terminal

        return terminal.TerminalHolder(starter, fields)
    if mode in ([], ["pipes"]):
        import pipes

        return pipes.PipesHolder(starter, fields)
    raise SystemExit("the client is of another version")


def leave_on_signal(number, _frame):
    """End like an error does, so that the agent's tree is ended first."""
    raise SystemExit(128 + number)
