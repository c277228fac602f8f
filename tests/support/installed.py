"""What a test needs that not every machine has."""

import os
from typing import NoReturn

import pytest

#: Set by CI: a missing program fails its tests, and does not skip them. Read at import: tests with
#: their own state directory clear it.
REQUIRED = os.environ.get("REMOTECLAW_REQUIRE_CLIS") == "1"


def missing(message: str) -> NoReturn:
    """Skip the test, or fail it where every program is required."""
    if REQUIRED:
        pytest.fail(message)
    pytest.skip(message)
