"""The processes below a holder: who they are, how they are signalled, what they leave."""

import ctypes
import os

#: The least `oom_score_adj` of the CLI and of all that it starts: when memory runs out, the kernel
#: ends them, which can be started again, before Redis and the workers.
OOM_SCORE = 500

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def prctl(option, value):
    """Call prctl(2), which the standard library lacks."""
    ctypes.CDLL(None).prctl(option, int(value), 0, 0, 0)


def raise_oom_score():
    """Make the kernel end this process and its children first when memory runs out."""
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
