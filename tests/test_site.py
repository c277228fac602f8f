"""The documentation's site: `scripts/docs` builds it, and a browser reads it without a network."""

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agents import ROOT
from tests.support.browser import launched
from tests.support.waiting import HANG_S

pytestmark = pytest.mark.thorough


def built(root: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(root / "scripts" / "docs")],
        capture_output=True,
        check=False,
        text=True,
        timeout=HANG_S,
    )


@contextlib.contextmanager
def served() -> Iterator[str]:
    """Build and serve the site of this checkout; yield the address of its list of pages."""
    command = [str(ROOT / "scripts" / "docs"), "serve", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout
            lines = iter(process.stdout.readline, b"")
            yield next(line for line in lines if line.startswith(b"http:")).split()[0].decode()
        finally:
            process.kill()


def test_each_fault_of_a_page_is_named_with_its_line(directory: Path) -> None:
    assert built(ROOT).returncode == 0  # which also installs the builder
    (directory / "scripts").mkdir()
    (directory / "scripts" / "docs").write_text((ROOT / "scripts" / "docs").read_text())
    (directory / "scripts" / "setup").write_text("#!/bin/sh\n")
    for name in ("docs", "setup"):
        (directory / "scripts" / name).chmod(0o755)
    (directory / ".venv").symlink_to(ROOT / ".venv")
    docs, page = directory / "docs", directory / "docs" / "page.md"
    docs.mkdir()
    (directory / "README.md").write_text("# It\n\n[All](docs/README.md)\n")
    (docs / "README.md").write_text("# All\n\n## Shelf\n\n- [A page](page.md): it.\n")
    (docs / "lost.md").write_text("# Lost\n")

    page.write_text("# A page\n\n[a](nowhere.md)\n[b](README.md#nowhere)\n")
    broken = built(directory)
    page.write_text("# A page\n\n![c](https://example.org/c.png)\n")
    foreign = built(directory)
    page.write_text("# A page\n\n[d](https://example.org/)\n")
    (docs / "lost.md").unlink()
    sound = built(directory)

    assert "docs/page.md:3: page does not exist\n" in broken.stderr
    assert "docs/page.md:4: anchor does not exist\n" in broken.stderr
    assert "docs/lost.md: is on no shelf" in foreign.stderr
    assert "page/index.html: loads " in foreign.stderr
    assert (broken.returncode, foreign.returncode, sound.returncode) == (1, 1, 0)


async def test_the_site_is_searched_without_a_network_and_fits_a_phone() -> None:
    with served() as address:
        async with launched() as browser:
            page = await browser.new_page(viewport={"width": 390, "height": 800})
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            await page.goto(f"{address}page/")
            width = await page.evaluate("document.documentElement.scrollWidth")
            await page.keyboard.press("Control+k")
            await page.keyboard.type("lease")
            await page.get_by_text(re.compile(r"\d\d results")).wait_for()

    assert width <= 390
    origin = address.partition("/docs/")[0]
    assert {url for url in asked if not url.startswith((origin, "data:", "blob:"))} == set()
