"""The agent: reads a JSON object with a `prompt` per line, and writes one with the `sum`."""

import json
import re
import sys

for line in sys.stdin:
    message = json.loads(line)["prompt"].splitlines()[-1]
    numbers = map(int, re.findall(r"-?\d+", message))
    sys.stdout.write(json.dumps({"sum": sum(numbers)}) + "\n")
    sys.stdout.flush()
