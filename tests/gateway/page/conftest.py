"""What the tests of the page share: a browser, as its driver takes more than most of the tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from remoteclaw.config.home import Home
from tests.support.browser import launched
from tests.support.stack import Stack, running_stack


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run them in one event loop, the browser's."""
    for item in items:
        if Path(__file__).parent in item.path.parents and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A browser; each test opens pages of its own."""
    async with launched() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def stack(home: Home, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stack]:
    """A stack as elsewhere, in that loop."""
    async with running_stack(home, monkeypatch) as stack:
        yield stack
