"""The holder: starts one agent CLI, keeps it alive, and ends its whole process tree.

`main()` runs in `python -I -S`. Its standard input is a connected unix socket, whose other end is
the first client. A holder has one of two modes: `pipes.py` hands the CLI's pipes to a client,
`terminal.py` runs the CLI in a terminal. This module has their common parts.

The holder is the subreaper of all processes that the CLI starts, so none can leave its tree.

It imports as little as possible: `import socket, signal, json` would double the 9 ms that a holder
adds to a cold start.

A message of the protocol is a line, which some messages follow with a body whose length is in the
line. A deadline is in seconds of CLOCK_BOOTTIME, which continues while a laptop sleeps.
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
#: The maximum size of the body of START or PARK, in bytes; it has no system prompt.
MAX_BODY_BYTES = 8 * 1024 * 1024
#: The maximum length of a line, in bytes. A stranger can send only a line.
MAX_LINE_BYTES = 4096
#: The size of a read, in bytes: a larger buffer costs 50 µs, even for a single key.
READ_BYTES = 65536
#: The maximum number of strangers, which are clients that have not shown the key yet. One more
#: replaces the one that has waited longest.
MAX_STRANGERS = 32
#: The time between SIGTERM and SIGKILL, in seconds; claude needs 0.1.
GRACE_S = 1.0
#: How long to wait for processes of another user, which the holder can't signal, in seconds.
FOREIGN_S = 5.0
#: The maximum time between checks of the deadline, in seconds: poll()'s timeout stands still while
#: the machine is suspended.
TICK_S = 1.0
#: How long a stranger may take to show the key, in seconds.
HANDSHAKE_S = 5.0

#: The messages with a body, whose length is the last word of the line.
WITH_BODY = ("START", "PARK", "IN", "KEEP")


def now():
    """Return the time in seconds since boot, including suspended time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ConnectedClient:
    """A client: its socket, the bytes that are received and not handled, and the time of its start.

    One client is attached at a time; others are strangers, which have not shown the key yet.
    """

    def __init__(self, sock, max_body_bytes=0):
        self.sock = sock
        self.since = now()
        self.max_body_bytes = max_body_bytes
        self.buffer = b""
        self.descriptors = []
        self.is_closed = False

    def receive(self):
        """Receive the bytes that have arrived; note whether the client has closed."""
        try:
            data = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.add(data)

    def receive_launch(self):
        """Receive a part of START, with the descriptors that are attached to it."""
        data, ancillary, _, _ = self.sock.recvmsg(262144, 64, _socket.MSG_CMSG_CLOEXEC)
        for _level, _kind, numbers in ancillary:
            for at in range(0, len(numbers), 4):
                self.descriptors.append(int.from_bytes(numbers[at : at + 4], "little"))
        self.add(data)

    def add(self, data):
        """Add received bytes to the buffer; no bytes mean that the client has closed."""
        self.is_closed = not data
        self.buffer += data
        if len(self.buffer) > self.max_body_bytes + MAX_LINE_BYTES:
            self.is_closed = True

    def take(self):
        """Return the next complete message as (words, body); None if there is none yet."""
        head, newline, rest = self.buffer.partition(b"\n")
        if not newline:
            return None
        words = head.decode("ascii", "replace").split()
        size = 0
        if words and words[0] in WITH_BODY:
            size = int(words[-1]) if words[-1].isdigit() else MAX_BODY_BYTES + 1
            if size > self.max_body_bytes:
                self.is_closed = True
                return None
            if len(rest) < size:
                return None
        self.buffer = rest[size:]
        return words or [""], rest[:size]

    def send(self, data, descriptors=()):
        """Send all of `data`, with the descriptors attached to its first byte."""
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
    """The base class of both modes: one CLI with its process tree, until their end."""

    def __init__(self, starter, fields):
        key, path, run_dir, lifeline, leave_s, cwd, epoch, deadline, argc, *rest = fields
        self.key, self.path, self.run_dir = key, path, run_dir
        self.epoch, self.deadline = int(epoch), float(deadline)
        self.attached, self.strangers = starter, []
        self.lifeline, self.leave_s = self.open_lifeline(lifeline), float(leave_s)
        self.lifeless_since = None
        self.listener = self.listen()
        self.wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.set_wakeup_fd(wake_write)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        self.argv, self.environment = rest[: int(argc)], rest[int(argc) :]
        # The mark by which the strays of a killed holder are found (`host.process.end_strays`).
        self.identity = (os.getpid(), start_time("self"), namespace())
        self.environment.append(b"REMOTECLAW_HOLDER=%d:%s:%s" % self.identity)
        self.cwd = cwd
        self.status = self.cli = None

    def open_lifeline(self, path):
        """Open the FIFO whose writer must stay alive; return None if `path` is empty."""
        if not path:
            return None
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.read(descriptor, 1)  # with a writer, this raises BlockingIOError
        except BlockingIOError:
            return descriptor
        except OSError:
            pass
        raise SystemExit("the process that started this agent's worker is gone")

    def listen(self):
        """Return the listening socket, to which only this user can connect."""
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
        """Start the CLI. If it can't be executed, send the first client FAILED, and exit."""
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
        """Turn this forked child into the CLI; raises OSError if that fails."""
        self.take_descriptors()
        prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)  # the holder itself may be killed
        if os.getppid() != holder:
            os._exit(0)
        # RQ's work-horse ignores SIGINT, Python SIGPIPE and the holder SIGHUP; exec keeps that.
        for number in _signal.valid_signals():
            if _signal.getsignal(number) == _signal.SIG_IGN:
                _signal.signal(number, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        raise_oom_score()
        self.enter_directory()
        variables = dict(pair.split(b"=", 1) for pair in self.environment)
        os.execve(self.argv[0], self.argv, variables)

    def enter_directory(self):
        """Change to the CLI's directory."""
        os.chdir(self.cwd)

    def reap(self):
        """Reap the children that have ended. If the CLI is one of them, end its tree."""
        try:
            while os.read(self.wake_read, 512):
                pass
        except BlockingIOError:
            pass
        self.has_children()
        if self.status is not None:
            self.on_exit()

    def has_children(self):
        """Reap the children that have ended; return whether any descendant is left.

        Orphans become children of the holder, because it is the subreaper.
        """
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
        """Accept a new connection, if there is one."""
        try:
            descriptor, _ = self.listener._accept()
        except OSError:
            return
        sock = _socket.socket(fileno=descriptor)
        sock.setblocking(False)
        self.strangers.append(ConnectedClient(sock))
        if len(self.strangers) > MAX_STRANGERS:
            self.strangers.pop(0).sock.close()

    def end_tree(self, grace_s=GRACE_S):
        """Send the CLI's tree SIGTERM, and after `grace_s` SIGKILL until no process is left."""
        signal_all(descendants(os.getpid()), _signal.SIGTERM)
        kill_at = now() + grace_s
        while now() < kill_at and self.has_children():
            self.pause(0.005)
        pause, since = 0.005, now()
        while self.has_children():
            tree = descendants(os.getpid())
            signal_all(tree, _signal.SIGSTOP)  # stop all before, so that none can fork
            killed = signal_all(tree, _signal.SIGKILL)
            if not killed and now() > since + FOREIGN_S:
                break  # the rest belongs to another user (sudo): init becomes its parent
            self.pause(pause)
            pause = min(pause * 2, 1.0)

    def pause(self, seconds):
        """Wait while the tree ends; `terminal.py` overrides this."""
        time.sleep(seconds)

    def leave(self, client=None, message=b""):
        """Remove the run directory, send `client` a last message, and exit."""
        remove_tree(os.fsdecode(self.run_dir))
        if client:
            client.send(message)
        os._exit(0)


def main():
    """Receive START, start the CLI, and serve clients until its end."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    _signal.signal(_signal.SIGTERM, leave_on_signal)
    _signal.signal(_signal.SIGHUP, _signal.SIG_IGN)
    starter = ConnectedClient(_socket.socket(fileno=os.dup(0)), MAX_BODY_BYTES)
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
    finally:  # the CLI must not outlive the holder, even after an error in the holder
        holder.end()


def holder_of(words, starter, fields):
    """Return the holder of the mode that START names; an older client names none, for pipes."""
    mode = words[2:-1]
    # Each mode imports only its own module.
    if mode == ["pty"]:
        import terminal

        return terminal.TerminalHolder(starter, fields)
    if mode in ([], ["pipes"]):
        import pipes

        return pipes.PipesHolder(starter, fields)
    raise SystemExit("the client is of another version")


def leave_on_signal(number, _frame):
    """Raise SystemExit, so that `main()` ends the CLI's tree before it exits."""
    raise SystemExit(128 + number)
