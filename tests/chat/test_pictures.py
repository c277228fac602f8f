"""The pictures in the documentation match the current output."""

import re

import pytest

from tests.support.agents import ROOT
from tests.support.drawing import PICTURES, request_pictures
from tests.support.killed import AGAIN, kill_film
from tests.support.matrix import Homeserver
from tests.support.matrix import drawing as matrix_drawing
from tests.support.slack import Slack
from tests.support.slack import drawing as slack_drawing
from tests.support.telegram import Telegram

#: The longest README that people read.
MAX_LINES = 150


def test_the_pictures_of_requests_are_up_to_date(telegram: Telegram) -> None:
    for name, picture in request_pictures(telegram).items():
        assert (PICTURES / f"{name}.svg").read_text() == picture, f"run scripts/pictures: {name}"


async def test_the_picture_of_a_request_on_matrix_is_up_to_date(homeserver: Homeserver) -> None:
    drawn = await matrix_drawing.request_picture(homeserver)

    assert (PICTURES / "request-matrix.svg").read_text() == drawn, "run scripts/pictures"


def test_the_picture_of_a_request_in_slack_is_up_to_date(slack: Slack) -> None:
    drawn = slack_drawing.request_picture(slack)

    assert (PICTURES / "request-slack.svg").read_text() == drawn, "run scripts/pictures"


def check_film(picture: str) -> None:
    """Check that a film shows a kill, and then the whole answer once, at the times it names."""
    end = "".join(re.sub(r'<g class="k\d+ gone">.*?</g>', "", picture).split("<text ")[1:])
    shown = " ".join(re.sub("<[^>]*>|[^<>]*>", " ", end).split())
    assert re.search(r"\$ kill -9 \d+", shown)
    assert AGAIN.split()[-1] in shown
    assert shown.count("Shall I?") == 1
    killed, again, done = map(float, re.findall(r"(\d+\.\d) s", shown.partition("Recorded")[2]))
    assert 0 < killed < killed + again < done < 30


def test_the_film_in_the_readme_shows_the_whole_answer_after_the_kill() -> None:
    check_film((PICTURES / "killed.svg").read_text())


@pytest.mark.thorough
def test_the_film_in_the_readme_can_be_recorded_again() -> None:
    check_film(kill_film())


def test_the_readme_is_short_and_its_pictures_are_small() -> None:
    readme = (ROOT / "README.md").read_text()

    assert len(readme.splitlines()) <= MAX_LINES
    for picture in re.findall(r"docs/pictures/[\w.-]+", readme):
        assert (ROOT / picture).stat().st_size < 400_000, picture
