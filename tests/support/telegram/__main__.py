"""Serves on loopback until nobody can write to its standard input any more.

python -m tests.support.telegram FILE       its address goes into the file
"""

import sys
from pathlib import Path

from tests.support.doubles import serve
from tests.support.telegram.server import TelegramServer

if __name__ == "__main__":
    serve(lambda _: TelegramServer().app(), Path(sys.argv[1]))
