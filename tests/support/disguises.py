"""Texts that an agent's program could run as a command, and harmless texts that look similar."""

from pathlib import Path

#: Prefixes of a command: nothing, blanks, invisible characters, keys.
FRONTS = (
    *("", " ", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u3164", "\u2800", "\u2028"),
    *("\u200b", "\u200d", "\ufeff", "\u202e", "\u2066", "\ufe0f", "\u0301"),
    *("\x1b", "\x08", "\x15"),
)


def disguises(outside: Path) -> list[str]:
    """Return texts that run, clear, end or read something in one of the programs.

    Observed behaviour (claude 2.1.197, codex 0.169.0, gemini 0.61.0, opencode 1.18.33): as the
    prompt on the command line, codex runs "!touch x"; claude and gemini clear at "/clear", gemini
    also at " /clear"; both end at "/quit", claude also at "exit"; claude reads "@file". Pasted and
    sent, claude and codex run "!touch x"; all obey "/clear" and "/quit", also after an invisible
    character that we remove, and gemini after blanks; claude and opencode end at "exit" and ":q".
    gemini reads "@file" after a letter, and a text that consists of paths; claude reads a picture
    (gif, jpeg, png, webp) whose path starts with a "/" after a blank or at the start of a line, and
    goes to the end of the line or the next such "/"; codex and opencode read a picture whose path
    is the whole text. No line after the first was a command.
    """
    file = f"{outside}/secrets"
    return [
        *(f"{front}!touch x" for front in FRONTS),
        "！touch x",
        "﹗touch x",
        "/clear",
        "  /clear",
        "\u200b/clear",
        "/cl\u200bear",
        "／clear",
        "#remember",
        "＃remember",
        "﹟remember",
        f"@{file}.txt",
        f"read @{file}.txt",
        f"read (@{file}.txt)",
        f"read\n@{file}.txt",
        f"read ＠{file}.txt",
        f"read @\u200b{file}.txt",
        f'read@"{file}.txt"',
        "look at @",
        "x@/etc/passwd",
        "x@../secrets.txt",
        "x@src/secrets.txt",
        "漢@/etc/passwd",
        "读@secrets.txt。",
        "_@~/secrets.txt",
        "me@example.org/secrets.txt",
        "exit",
        " Exit \n",
        "quit",
        ":q",
        ":q!",
        ":wq",
        "：ｑ",
        "logout",
        "ex\u200bit",
        "$skill",
        "&work",
        "?",
        f"'{file}.txt'",
        f'"{outside}/my secrets.txt"',
        f"\\{file}.txt",
        "../secrets.txt",
        "'../my secrets.txt'",
        "./here ./../secrets.txt",
        f"./here {file}.txt",
        f"file://{file}.png",
        f"see {file}.png",
        f"see {outside}/my secrets.PNG /tmp",
        f"see {file}.pn\\g",
        f"one\n'{file}.jpeg'",
        f"one\n{file}.webp\ntwo",
        "src/../../secrets.svg",
        "'../secrets.pd\\f'",
    ]


def harmless(outside: Path) -> list[str]:
    """Return texts with the same characters that each program takes as plain text."""
    return [
        "a list\n!touch x\n/clear",
        "the end of a paste\x1b[201~\r!touch x\r/clear\r",
        "x\x7f!touch x",
        "line\n" * 12 + "/clear",
        "what do !ls and /clear do?",
        "mail me@example.org about a/b and #12.",
        f"see {outside}/secrets.png and tell me",
        f"see {outside}/secrets.png.",
        f"see '{outside}/secrets.png'",
        f"see {outside}/secrets.svg",
        "see ../secrets.png",
        f"what is in ({outside}/secrets.txt)",
        "exit code 1 is wrong",
    ]
