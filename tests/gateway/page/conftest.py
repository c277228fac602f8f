"""A browser that all tests of the page share, because its start is slower than most tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from remoteclaw.config.home import Home
from tests.support.browser import launched
from tests.support.stack import Stack, running_stack


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests of the page in the event loop of the browser."""
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
    """A stack as in other tests, in the event loop of the browser."""
    async with running_stack(home, monkeypatch) as stack:
        yield stack
