"""The documentation's pictures of the page show what people see."""

from pathlib import Path

from playwright.async_api import Browser

from tests.support.drawing import PICTURES
from tests.support.page_pictures import page_pictures
from tests.support.stack import Stack


async def test_the_pictures_of_the_page_say_what_it_says(
    browser: Browser, stack: Stack, directory: Path
) -> None:
    """By their words: browsers of two versions draw one page differently."""
    for name, picture in (await page_pictures(browser, stack, directory)).items():
        text = (PICTURES / f"{name}.txt").read_text()
        assert text == picture.text, f"run scripts/pictures: {name}"
        kept = (PICTURES / f"{name}.png").stat().st_size
        assert kept < 100_000
