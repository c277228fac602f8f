"""The documentation's pictures of the page are up to date."""

from pathlib import Path

from playwright.async_api import Browser

from tests.support.drawing import PICTURES
from tests.support.page_pictures import page_pictures
from tests.support.stack import Stack


async def test_the_pictures_of_the_page_have_its_current_text(
    browser: Browser, stack: Stack, directory: Path
) -> None:
    """Only the text is compared, because versions of a browser draw a page differently."""
    for name, picture in (await page_pictures(browser, stack, directory)).items():
        text = (PICTURES / f"{name}.txt").read_text()
        assert text == picture.text, f"run scripts/pictures: {name}"
        size = (PICTURES / f"{name}.png").stat().st_size
        assert size < 100_000
