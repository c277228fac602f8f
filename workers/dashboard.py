"""rq-dashboard on this fleet's Redis: queues, workers and hints in a browser, on loopback.

This is stock rq-dashboard with two changes. It never unpickles, which would run code that another
client stored. And it is read-only and refuses requests from other web pages:
otherwise any page in the owner's browser could delete and requeue jobs.
"""

import sys

import rq.serializers
from rq.job import Job

from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.config.model import GatewayConfig
from remoteclaw.errors import RemoteClawError
from remoteclaw.gateway.guard import is_own_name
from remoteclaw.host.installation import missing_packages


def main() -> None:
    """Run rq-dashboard with its own options from the command line; `--help` shows them."""
    rq.serializers.PickleSerializer = rq.serializers.JSONSerializer  # type: ignore[assignment]
    try:
        from rq_dashboard.cli import run as dashboard
    except ImportError:
        sys.exit(f"remoteclaw: {missing_packages('dashboard')}")
    try:
        home = Home.default().check()
        config = load_config(home.config_file)
        url = home.redis_url(config)
    except RemoteClawError as error:
        sys.exit(f"remoteclaw: {error}")
    _guard(config.gateway)
    # Shows the description instead of the argument, a session's id, from which a person's id could
    # be computed.
    Job.get_call_string = lambda job: job.description  # type: ignore[method-assign,assignment]
    arguments = ["--redis-url", url, "--json", "--disable-delete", "--bind", "127.0.0.1"]
    dashboard([*arguments, *sys.argv[1:]], prog_name="remoteclaw dashboard")


def _guard(config: GatewayConfig) -> None:
    """Refuse requests under other host names, from other pages, and those that change data."""
    from flask import Response, request
    from rq_dashboard.web import blueprint

    def problem() -> str | None:
        if not is_own_name(request.headers.get("Host", "").lower(), config):
            return "The dashboard has no such host name: add it to [gateway] hosts."
        origin = request.headers.get("Origin")
        if origin is not None and origin.lower() not in config.origins:
            return "Pages of this origin may not use the dashboard: add it to [gateway] origins."
        if request.method not in ("GET", "HEAD") or request.endpoint == "rq_dashboard.requeue_all":
            return "The dashboard is read-only: use the commands of `remoteclaw` for changes."
        return None

    def refuse() -> Response | None:
        why = problem()
        return Response(f"{why}\n", 403, content_type="text/plain") if why else None

    blueprint.before_app_request(refuse)


if __name__ == "__main__":
    main()
