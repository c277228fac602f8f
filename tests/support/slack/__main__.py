"""Serves on loopback until nobody can write to its standard input any more.

python -m tests.support.slack FILE       its address goes into the file
"""

import sys
from pathlib import Path

from tests.support.doubles import serve
from tests.support.slack.server import SlackServer

if __name__ == "__main__":
    serve(lambda url: SlackServer(url).app(), Path(sys.argv[1]))
