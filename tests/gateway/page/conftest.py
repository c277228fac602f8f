"""What the tests of the page share: a browser."""

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser

from tests.support.browser import launched


@pytest_asyncio.fixture
async def browser() -> AsyncIterator[Browser]:
    async with launched() as browser:
        yield browser
