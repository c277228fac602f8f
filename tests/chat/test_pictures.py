"""The pictures in the documentation match the current output."""

from tests.support.drawing import PICTURES, request_pictures
from tests.support.telegram import Telegram


def test_the_pictures_of_requests_are_up_to_date(telegram: Telegram) -> None:
    for name, picture in request_pictures(telegram).items():
        assert (PICTURES / f"{name}.svg").read_text() == picture, f"run scripts/pictures: {name}"
