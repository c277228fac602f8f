"""The app's manifest: what an administrator allows when the app is made."""

import json
from importlib.resources import files
from typing import Any
from urllib.parse import quote

#: The app's manifest, as JSON.
MANIFEST: dict[str, Any] = json.loads(
    files("remoteclaw.channels.slack").joinpath("manifest.json").read_bytes()
)
#: The scopes of the bot token.
BOT_SCOPES = frozenset(MANIFEST["oauth_config"]["scopes"]["bot"])
#: The events that Slack pushes.
EVENTS = frozenset(MANIFEST["settings"]["event_subscriptions"]["bot_events"])
#: A link with which Slack makes the app.
LINK = "https://api.slack.com/apps?new_app=1&manifest_json=" + quote(
    json.dumps(MANIFEST, separators=(",", ":")), safe=":,/"
)
