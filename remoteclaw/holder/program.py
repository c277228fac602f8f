"""The holder: starts one agent CLI, passes its pipes on, keeps it warm, ends its whole tree.

`main()` runs in `python -I -S` with a connected unix socket as standard input, whose other end is
the first client.
The holder is the subreaper of everything that the CLI starts, so nothing can leave its tree; it
ends that tree when beats stop coming, when a client's connection ends without PARK, and, parked,
when its time is over or the process that keeps the lifeline is gone.

Little is imported: `import socket, signal, json` would double the 9 ms that a cold start pays for
the holder.

It has two modes: `pipes`, below, and `pty`, for programs in a terminal (`terminal.py`).

The wire, version 1.  Every message is one line, for some followed by a body of stated length:

    client                                    holder
    START 1 pipes <bytes>\\n<fields>           HELLO 1 pipes <pid> <state bytes> <output bytes>\\n…
                                                 with the CLI's stdin, stdout and stderr attached
                                              or FAILED <errno>
    BEAT <deadline>
    PARK <epoch> <seconds> <bytes>\\n<state>   PARKED
    END                                       ENDED
    ATTACH 1 <epoch> <key> <deadline>         HELLO …, GONE or DENIED
                                              EXIT <status> when the CLI ended by itself

A deadline is in seconds of CLOCK_BOOTTIME, which goes on while a laptop sleeps.
"""

import _signal  # the signal module wraps it in enums, 4 ms
import _socket
import ctypes
import os
import select
import time
from _operator import _compare_digest  # hmac.compare_digest without importing hmac

PROTOCOL = "1"
#: The most output of a parked CLI, in bytes: one that prints more is ended.
RING_BYTES = 1024 * 1024
#: The most of a START or PARK body that is accepted, in bytes: a system prompt is not part of it.
BODY_BYTES = 8 * 1024 * 1024
#: The longest line that is accepted, in bytes; of an unknown peer nothing else is.
LINE_BYTES = 4096
#: The most unknown peers at a time: when more come, the one that has waited longest goes.
STRANGERS = 32
#: The time between SIGTERM and SIGKILL, in seconds; claude needs 0.1.
GRACE_S = 1.0
#: The longest wait for processes that the holder may not signal, in seconds.
FOREIGN_S = 5.0
#: The interval of checks of deadlines, in seconds: poll()'s own timeout does not count suspend.
TICK_S = 1.0
#: The least `oom_score_adj` of the CLI and of all that it starts: when memory runs out, the kernel
#: ends them, which can be started again, before Redis and the workers.
OOM_SCORE = 500
#: The longest wait for the key of an unknown peer, in seconds.
HANDSHAKE_S = 5.0

#: The messages whose last word says how long a body follows them.
WITH_BODY = ("START", "PARK", "IN", "KEEP")

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


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
            data = self.sock.recv(262144)
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
        """Take that file away."""
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


def prctl(option, value):
    """Call prctl(2), which the standard library lacks."""
    ctypes.CDLL(None).prctl(option, int(value), 0, 0, 0)


def raise_oom_score():
    """Have the kernel prefer this process, and its children, when memory runs out."""
    try:
        with open("/proc/self/oom_score_adj", "r+") as file:
            if int(file.read()) < OOM_SCORE:
                file.write(str(OOM_SCORE))
    except OSError:  # a sandbox may have it read-only
        pass


def start_time(pid):
    """Return when a process started, in clock ticks since boot: with its pid, its identity."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[19]


def namespace():
    """Return which process ids are meant, as `process.py` does: a boot and a pid namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            boot = file.read().strip()
    except OSError:
        boot = b"unknown"
    return boot + b"/%d" % os.stat("/proc/self/ns/pid").st_ino


def signal_all(pids, number):
    """Send one signal to every process that is still there and ours; return how many were."""
    count = 0
    for pid in pids:
        try:
            os.kill(pid, number)
            count += 1
        except OSError:
            pass
    return count


def descendants(root):
    """Return every process below `root`, from /proc."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(name))
    found, queue = [], [root]
    while queue:
        children = parents.get(queue.pop(), [])
        found += children
        queue += children
    return found


def remove_tree(path):
    """Remove a directory and what is in it, following no links."""
    try:
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path)
            else:
                os.unlink(entry.path)
        os.rmdir(path)
    except OSError:
        pass


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
    mode = words[2:-1]
    if mode == ["pty"]:
        import terminal  # an agent's holder starts without it

        return terminal.TerminalHolder(starter, fields)
    if mode in ([], ["pipes"]):
        return PipesHolder(starter, fields)
    raise SystemExit("the client is of another version")


def leave_on_signal(number, _frame):
    """End like an error does, so that the agent's tree is ended first."""
    raise SystemExit(128 + number)
