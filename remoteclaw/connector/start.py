"""The connector's start file; Python caches the byte code of what it imports.

Compiling it at each start would cost as much time as everything else that the connector does.
"""

import _signal  # type: ignore[import-not-found]  # what signal wraps in enums, 4 ms
import sys

if __name__ == "__main__":
    for number in (_signal.SIGINT, _signal.SIGTERM):  # to end without a traceback
        _signal.signal(number, _signal.SIG_DFL)
    # Behind the standard library, which nothing beside us may shadow.
    sys.path.append(__file__.rsplit("/", 3)[0])

    from remoteclaw.connector.connector import main

    main()
