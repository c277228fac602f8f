"""rq-dashboard on this fleet's Redis: queues, workers and hints in a browser, on loopback.

It is rq-dashboard itself, with one thing changed: it would read every job with pickle, which fails
on our hints and would run whatever somebody else put there.
"""

import sys

import rq.serializers

from remoteclaw.config import load_config
from remoteclaw.errors import RemoteClawError
from remoteclaw.home import Home

__all__ = ["main"]


def main() -> None:
    """Run rq-dashboard; its own options may follow, and `--help` shows them."""
    rq.serializers.PickleSerializer = rq.serializers.JSONSerializer  # type: ignore[assignment]
    try:
        from rq_dashboard.cli import run as dashboard
    except ImportError as error:
        sys.exit(
            f"remoteclaw: rq-dashboard is not installed here ({error.name}): "
            f"`{sys.executable} -m pip install rq-dashboard==0.9.0 six`."
        )
    home = Home.default()
    try:
        url = home.redis_url(load_config(home.config_file))
    except RemoteClawError as error:
        sys.exit(f"remoteclaw: {error}")
    arguments = ["--redis-url", url, "--json", "--bind", "127.0.0.1", *sys.argv[1:]]
    dashboard(arguments, prog_name="remoteclaw dashboard")


if __name__ == "__main__":
    main()
