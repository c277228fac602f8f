"""Settings of some workers of these tests, for `-c tests.upstream.settings`."""

import json
import os
import sys
from pathlib import Path

import click

directory = Path(os.environ["UPSTREAM_DIRECTORY"])
if "UPSTREAM_REFUSED" in os.environ:
    sys.exit("Refused, in one line.")

QUEUES = ["from-settings"]
REDIS_URL = f"unix://{directory}/s"
DICT_CONFIG = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"file": {"class": "logging.FileHandler", "filename": str(directory / "spoken")}},
    "loggers": {"tests.upstream.jobs": {"level": "INFO", "handlers": ["file"]}},
}

context = click.get_current_context(silent=True)
with (directory / "settings-read").open("a") as file:
    command, flags = (context.command.name, context.params) if context else (None, {})
    file.write(json.dumps({"pid": os.getpid(), "command": command, "flags": flags}) + "\n")
