"""What `up` leaves behind in mid-turn, killed or asked to end, is taken up at its next start."""

import pytest

from remoteclaw.config import Home
from remoteclaw.drain import MOST_ATTEMPTS
from tests.support.waiting import eventually_sync
from tests.test_up import remoteclaw, running

pytestmark = pytest.mark.timeout(120)


def begin_something_long(home: Home, **more: str) -> str:
    """Send a message whose answer takes half a minute; return its reference once it is begun."""
    reference = remoteclaw(home, "send", "slow", "--wait", "0", **more).stdout.strip()
    eventually_sync(lambda: "output" in trace(home, reference, **more))
    return reference


def trace(home: Home, reference: str, **more: str) -> str:
    return remoteclaw(home, "sessions", "trace", reference, **more).stdout


def test_a_message_outlives_any_number_of_polite_ends(home: Home) -> None:
    """They don't count as failures, or it would be given up."""
    with running(home) as up:
        reference = begin_something_long(home)
        up.terminate()
        up.wait(30)

    for again in range(2, MOST_ATTEMPTS + 3):
        with running(home) as up:
            attempt = f"output     attempt {again}"
            eventually_sync(lambda: attempt in trace(home, reference))  # noqa: B023 - used at once
            up.terminate()
            up.wait(30)


@pytest.mark.parametrize("_time", range(3))
def test_a_kill_is_not_taken_for_the_agents_own_end(home: Home, _time: int) -> None:
    """Everything ends at once then; whoever sees the agent end first must not say that it died."""
    with running(home) as up:
        reference = begin_something_long(home)
        up.kill()
        up.wait()

    with running(home):
        eventually_sync(lambda: "attempt 2" in trace(home, reference))
        session = reference.partition("-")[0]
        assert remoteclaw(home, "stop", session).returncode == 0
        assert "died" not in trace(home, reference)
