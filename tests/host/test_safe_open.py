"""Opening a directory below a root, also while another process replaces it with a symlink."""

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


def test_a_directory_below_a_root_is_opened_even_if_the_root_is_a_symlink(tmp_path: Path) -> None:
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
def test_a_path_that_leads_out_of_the_root_is_refused(tmp_path: Path, subdir: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "a" / "link").symlink_to("/etc")

    with pytest.raises(BadSubdir):
        open_below(tmp_path, subdir)


def test_nothing_is_opened_below_a_world_writable_directory(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    tmp_path.chmod(0o777)

    with pytest.raises(BadSubdir):
        open_below(tmp_path, "a")

    tmp_path.chmod(0o1777)
    assert opened(tmp_path, "a") == tmp_path / "a"


def test_a_symlink_swapped_in_during_the_opening_is_not_followed(tmp_path: Path) -> None:
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
    escaped: set[bool | None] = set()
    try:
        for _ in range(SWAPS):
            try:
                escaped.add(opened(root, "a/deep").is_relative_to(outside))
            except BadSubdir:
                escaped.add(None)
    finally:
        is_over.set()
        swapping.join()

    assert escaped <= {False, None}
    assert False in escaped


def test_opening_leaves_no_descriptor_open(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    before = len(os.listdir("/proc/self/fd"))

    for subdir in ("a", "a/b", "..", "a"):
        with contextlib.suppress(BadSubdir):
            os.close(open_below(tmp_path, subdir))

    assert len(os.listdir("/proc/self/fd")) == before
