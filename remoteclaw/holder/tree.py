"""The processes below a holder: finds them, signals them, and removes the run directory."""

import ctypes
import os

#: The minimum `oom_score_adj` of the CLI and its children. When memory runs out, the kernel kills
#: them, which can be started again, before Redis and the workers.
MIN_OOM_SCORE = 500

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def prctl(option, value):
    """Call prctl(2), which the standard library lacks."""
    ctypes.CDLL(None).prctl(option, int(value), 0, 0, 0)


def raise_oom_score():
    """Have the kernel kill this process and its children first when memory runs out."""
    try:
        with open("/proc/self/oom_score_adj", "r+") as file:
            if int(file.read()) < MIN_OOM_SCORE:
                file.write(str(MIN_OOM_SCORE))
    except OSError:  # in a sandbox, the file can be read-only
        pass


def start_time(pid):
    """Return the start time of a process, in clock ticks since boot, which identifies its pid."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[19]


def namespace():
    """Return the name of this process's pid namespace, in the form of `host/process.py`."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            boot = file.read().strip()
    except OSError:
        boot = b"unknown"
    return boot + b"/%d" % os.stat("/proc/self/ns/pid").st_ino


def signal_all(pids, number):
    """Send a signal to each process that exists and belongs to this user; return their number."""
    count = 0
    for pid in pids:
        try:
            os.kill(pid, number)
            count += 1
        except OSError:
            pass
    return count


def descendants(root):
    """Return the ids of all processes below the process `root`."""
    children_of = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            children_of.setdefault(int(fields[1]), []).append(int(name))
    pids, queue = [], [root]
    while queue:
        children = children_of.get(queue.pop(), [])
        pids += children
        queue += children
    return pids


def remove_tree(path):
    """Remove a directory and its content, without following symbolic links."""
    try:
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path)
            else:
                os.unlink(entry.path)
        os.rmdir(path)
    except OSError:
        pass
