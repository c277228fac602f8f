"""rq-dashboard on this fleet's Redis: queues, workers and hints in a browser, on loopback.

It is rq-dashboard itself, with two things changed. It would read every job with pickle, which fails
on our hints and would run code that another client put there. And it would answer any page of the
owner's browser, and delete and requeue for it: here it answers under its own names, and only shows.
"""

import sys

import rq.serializers
from rq.job import Job

from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.config.model import GatewayConfig
from remoteclaw.errors import RemoteClawError
from remoteclaw.gateway.guard import is_own_name


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
    try:
        home = Home.default().check()
        config = load_config(home.config_file)
        url = home.redis_url(config)
    except RemoteClawError as error:
        sys.exit(f"remoteclaw: {error}")
    _guard(config.gateway)
    # A job's argument is the id of a session, from which a person's id could be computed.
    Job.get_call_string = lambda job: job.description  # type: ignore[method-assign,assignment]
    arguments = ["--redis-url", url, "--json", "--disable-delete", "--bind", "127.0.0.1"]
    dashboard([*arguments, *sys.argv[1:]], prog_name="remoteclaw dashboard")


def _guard(config: GatewayConfig) -> None:
    """Refuse requests to other names, from other pages, and those that change something."""
    from flask import Response, request
    from rq_dashboard.web import blueprint

    def problem() -> str | None:
        if not is_own_name(request.headers.get("Host", "").lower(), config):
            return "This is not a name of the dashboard: [gateway] hosts names more."
        origin = request.headers.get("Origin")
        if origin is not None and origin.lower() not in config.origins:
            return "Pages of this origin may not use the dashboard: [gateway] origins names more."
        if request.method not in ("GET", "HEAD") or request.endpoint == "rq_dashboard.requeue_all":
            return "The dashboard only shows: `remoteclaw` has commands that change something."
        return None

    def refuse() -> Response | None:
        why = problem()
        return Response(f"{why}\n", 403, content_type="text/plain") if why else None

    blueprint.before_app_request(refuse)


if __name__ == "__main__":
    main()
