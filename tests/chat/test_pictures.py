"""The pictures of the documentation show what people see."""

from tests.support.drawing import PICTURES, request_pictures
from tests.support.telegram import Telegram


def test_the_pictures_of_a_request_are_what_people_see(telegram: Telegram) -> None:
    for name, picture in request_pictures(telegram).items():
        assert (PICTURES / f"{name}.svg").read_text() == picture, f"run scripts/pictures: {name}"
