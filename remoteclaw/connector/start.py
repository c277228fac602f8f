"""The connector's start file; Python caches the byte code of what it imports, not of this file."""

import signal
import sys

if __name__ == "__main__":
    sys.modules["ssl"] = None  # type: ignore[assignment]  # http.client does without; 7 ms
    for number in (signal.SIGINT, signal.SIGTERM):  # to end without a traceback
        signal.signal(number, signal.SIG_DFL)
    # Behind the standard library, which nothing beside us may shadow.
    sys.path.append(__file__.rsplit("/", 3)[0])

    from remoteclaw.connector.connector import main

    main()
