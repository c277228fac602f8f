"""The connector's script; it is short, because Python caches bytecode only of imported modules."""

import signal
import sys

if __name__ == "__main__":
    # http.client works without ssl, whose import takes 7 ms.
    sys.modules["ssl"] = None  # type: ignore[assignment]
    for number in (signal.SIGINT, signal.SIGTERM):  # to end without a traceback
        signal.signal(number, signal.SIG_DFL)
    # At the end of the path, so that no file next to the package shadows the standard library.
    sys.path.append(__file__.rsplit("/", 3)[0])

    from remoteclaw.connector.connector import main

    main()
