"""Texts that an agent's program could take for a command, and texts that only look like one."""

from pathlib import Path

#: What may stand in front of a command: nothing, blanks, signs without a picture, keys.
FRONTS = (
    *("", " ", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u3164", "\u2800", "\u2028"),
    *("\u200b", "\u200d", "\ufeff", "\u202e", "\u2066", "\ufe0f", "\u0301"),
    *("\x1b", "\x08", "\x15"),
)


def disguises(outside: Path) -> list[str]:
    """Return texts that run, clear, end or read something in one of the programs.

    What was seen of them (claude 2.1.197, codex 0.169.0, gemini 0.61.0, opencode 1.18.33). As the
    prompt on their command line: codex runs "!touch x"; claude and gemini clear for "/clear",
    gemini for " /clear" too, and both end for "/quit", claude for "exit"; claude reads "@file".
    Pasted and sent: claude and codex run "!touch x"; all obey "/clear" and "/quit", also where an
    invisible sign that we remove was in front, gemini behind blanks too; claude and opencode end
    for "exit" and ":q". gemini reads "@file" behind a letter, and a text of nothing but paths;
    claude a picture (gif, jpeg, png, webp) from a "/" behind a blank, or a line's beginning, to the
    line's end or the next such "/"; codex and opencode one that is the whole text. No line behind
    the first one was a command.
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
    """Return texts with the same in them, which people may write and each program takes as text."""
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
