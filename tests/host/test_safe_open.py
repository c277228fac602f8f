"""A directory below another one is opened there, whatever somebody puts in its place meanwhile."""

import contextlib
import os
import threading
from pathlib import Path

import pytest

from remoteclaw.host.safe_open import MAX_PARTS, BadSubdir, open_below

SWAPS = 10_000


def opened(root: Path, subdir: str | None) -> Path:
    descriptor = open_below(root, subdir)
    try:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    finally:
        os.close(descriptor)


def test_it_is_the_directory_itself_and_the_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real" / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")

    assert opened(tmp_path / "link", None) == tmp_path / "real"
    assert opened(tmp_path / "link", "a//./b/") == tmp_path / "real" / "a" / "b"


@pytest.mark.parametrize(
    "subdir",
    [
        "/etc",
        "..",
        "a/../..",
        "a\0b",
        "link",
        "a/link",
        "file",
        "not-there",
        "a/" * MAX_PARTS + "a",
    ],
)
def test_what_leads_elsewhere_is_refused(tmp_path: Path, subdir: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "a" / "link").symlink_to("/etc")

    with pytest.raises(BadSubdir):
        open_below(tmp_path, subdir)


def test_below_what_everybody_may_change_nothing_begins(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    tmp_path.chmod(0o777)

    with pytest.raises(BadSubdir):
        open_below(tmp_path, "a")

    tmp_path.chmod(0o1777)
    assert opened(tmp_path, "a") == tmp_path / "a"


def test_a_link_that_comes_and_goes_leads_nowhere(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "a").mkdir(parents=True)
    (outside / "deep").mkdir(parents=True)
    (root / "a" / "deep").mkdir()
    (root / "other").symlink_to(outside)
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            for old, new in (("a", "kept"), ("other", "a"), ("a", "other"), ("kept", "a")):
                os.rename(root / old, root / new)

    swapping = threading.Thread(target=swap)
    swapping.start()
    found: set[bool | None] = set()
    try:
        for _ in range(SWAPS):
            try:
                found.add(opened(root, "a/deep").is_relative_to(outside))
            except BadSubdir:
                found.add(None)
    finally:
        is_over.set()
        swapping.join()

    assert found <= {False, None}
    assert False in found


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    before = len(os.listdir("/proc/self/fd"))

    for subdir in ("a", "a/b", "..", "a"):
        with contextlib.suppress(BadSubdir):
            os.close(open_below(tmp_path, subdir))

    assert len(os.listdir("/proc/self/fd")) == before
