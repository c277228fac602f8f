"""A root directory that has the system's own programs and libraries, and nothing of ours.

    command = in_empty_root(directory, shows=[venv])
    subprocess.run([*command, "sh", "-c", "remoteclaw --version"])

It is like a container: `/usr` without `/usr/local`, a few files of `/etc`, and an empty home. What
runs there has process ids of its own, and ends with the command. A system that lets nobody make
such a root gets an empty environment only.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

#: Makes the root `$1`, and runs the arguments there. The directories in `$2` are also there.
_SCRIPT = """
set -e
root=$1 shown=$2
shift 2
mount -t tmpfs tmpfs "$root"
cd "$root"
mkdir -p usr etc proc dev tmp root
for link in bin sbin lib lib64; do [ ! -L /$link ] || cp -P /$link .; done
mount --rbind /usr usr
mount -t tmpfs tmpfs usr/local
for file in passwd group ld.so.cache alternatives; do cp -a /etc/$file etc; done
mount -t proc proc proc
mount --rbind /dev dev
for directory in $shown; do
  mkdir -p ".$directory"
  mount --rbind "$directory" ".$directory"
done
exec chroot . "$@"
"""
_UNSHARE = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child")


def in_empty_root(directory: Path, *, shows: Sequence[Path], path: str) -> list[str]:
    """Return the beginning of a command that runs there, with `path` as its PATH.

    The home directory is empty. Of other directories it has only those in `shows`.
    """
    home = directory / "home"
    home.mkdir()
    clean = ["env", "-i", f"PATH={path}:/usr/bin:/bin"]
    root = directory / "root"
    root.mkdir()
    shown = " ".join(map(str, shows))
    argv = [*_UNSHARE, "sh", "-c", _SCRIPT, "sh", str(root), shown, *clean, "HOME=/root"]
    if subprocess.run([*argv, "true"], check=False, capture_output=True).returncode:
        return [*clean, f"HOME={home}"]
    return argv
