"""An earlier version of RemoteClaw: the newest tag, or else the commit before this one.

$REMOTECLAW_TEST_EARLIER names another.
"""

import os
import subprocess

import pytest

from tests.support.command import ROOT


def git(*arguments: str) -> str:
    """Run git in this checkout; return what it prints, empty if it fails."""
    done = subprocess.run(
        ("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def earlier_version() -> str:
    """Return the name of a commit; skip the test without one."""
    tag = git("describe", "--tags", "--abbrev=0")
    name = os.environ.get("REMOTECLAW_TEST_EARLIER") or tag or git("rev-parse", "HEAD~1")
    if not name:
        pytest.skip("this is no checkout with an earlier commit")
    return name
