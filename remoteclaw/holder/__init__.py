"""The program that keeps one agent process alive, and the client that drives it.

`program.py` is a process of its own, started by exec; it imports nothing of ours and little of the
standard library, because every agent that starts waits for it. `terminal.py` is the part of it that
keeps a terminal.
`client.py` is what a drain uses, `terminal_client.py` what drives a terminal.
"""
