"""An agent whose answers use all of Markdown, and checks for faults in the shown output."""

import re
import time
from pathlib import Path

from tests.support.bridges import script
from tests.support.terminal import Terminal
from tests.support.waiting import HANG_S

#: The end of the indicator's line.
SIGN = "Ctrl-C stops\n"

EXPLAINED = """\
## How the basket is priced

The total is computed in **one place**, `shop/basket.py`, and *nothing else* adds prices up. That \
is why the discount shows on the page and not in the mail: the mail has a copy of the sum from \
[before the change](https://example.org/changes/417).

```python
def total(basket: list[tuple[Decimal, int]]) -> Decimal:
    return sum(price * count for price, count in basket)
```

What I would do:

1. let the mail call `total()`
2. delete the copy
   - it is 14 lines
   - nobody else uses it
3. add a test for an **empty** basket

| file | lines | what it does |
|---|--:|---|
| `shop/basket.py` | 120 | prices, discounts, totals |
| `shop/mail.py` | 84 | 日本語のメール and all others |
| `shop/page.py` | 310 | the page |

> A sum that is computed twice differs once.

Shall I?"""

#: The agent: where a real one would take time, it waits for a file in the test's directory.
#: During its turn, it answers messages that begin with `how` as asides; others wait.
_AGENT = """
import re, select
pipe = open(0, 'rb', buffering=0, closefd=False)
def turn():
    line = pipe.readline()
    if not line: sys.exit()
    return json.loads(line)
def aside(message):
    header, _, text = message['prompt'].rpartition('\\n\\n')
    key = re.search('answered:([0-9a-f]+)', header)[1]
    said = 'The copy is gone; the mail comes next.' if text.startswith('how') else ''
    verdict = 'answered' if said else 'later'
    say(type='aside', id=message['id'], text=f'{said}\\n[[{verdict}:{key}]]')
def until(name):
    while not os.path.exists(f'DIRECTORY/{name}'):
        if select.select([0], [], [], 0.01)[0]:
            heard = turn()
            if heard['type'] == 'aside': aside(heard)
def use(name, gate, **arguments):
    say(type='tool_use', id=name, name=name, input=arguments)
    until(gate)
    say(type='tool_result', id=name, output='')
def stream(text):
    for at in range(0, len(text), 24):
        say(type='text', text=text[at:at + 24])
        time.sleep(0.002)
while True:
    heard = turn()
    if heard['type'] == 'aside': aside(heard)
    if heard['type'] != 'turn': continue
    header, _, text = heard['prompt'].rpartition('\\n\\n')
    word = text.split()[-1]
    if word == 'discount?':
        use('Grep', 'look', pattern='total', path='shop')
        stream(EXPLAINED)
    elif word == 'it.':
        stream('I delete the copy')
        until('wait')
        stream(', and now the mail calls `total()`.')
    elif word == 'tests?':
        use('Bash', 'meanwhile', command='pytest -q tests/shop')
        stream('All **31** tests pass.')
    elif word == 'report':
        with open('report.txt', 'w') as file: file.write('All is well.')
        stream('The report is here. [[attach:report.txt]]')
    elif 'attachments' in header:
        stream('I see the picture.')
    else:
        stream(f'You said {len(text.split())} words.')
    say(type='done')
"""

#: Output that must not be shown: unrendered Markdown, and parts of escape sequences.
_RAW = re.compile(r"\*\*|```|\]\(|^#+ |\|-|\[\[|\x1b|\\u001b|\^\[|\[\d*[mKJ]|\?2004", re.MULTILINE)


def day_agent(directory: Path) -> tuple[str, ...]:
    """Return the command of the agent, which waits for files in `directory`."""
    body = _AGENT.replace("DIRECTORY", str(directory)).replace("EXPLAINED", repr(EXPLAINED))
    return script(directory, body)


def at_rest(screen: Terminal) -> str:
    """Wait until the chat is idle; return the screen, which has no unrendered output."""
    until = time.monotonic() + HANG_S
    while not _rests(shown := screen.shown(), screen):
        assert time.monotonic() < until, f"no rest\n{shown}"
        screen.read()
    assert not _RAW.search(shown), shown
    assert "\n\n\n" not in shown, shown
    return shown


def whole_words(markdown: str, shown: str) -> None:
    """Check that `shown` breaks no word of the Markdown text."""
    words = re.findall(
        r"[A-Za-z]{3,}", re.sub(r"```.*?```|\]\(.*?\)", "", markdown, flags=re.DOTALL)
    )
    seen = set(re.findall(r"[A-Za-z]+", shown))
    assert not (missing := [word for word in words if word not in seen]), (missing, shown)


def _rests(shown: str, screen: Terminal) -> bool:
    return SIGN not in f"{shown}\n" and shown.endswith("\n›") and screen.cursor == ("›", 2)
