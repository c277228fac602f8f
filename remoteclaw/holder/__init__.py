"""The program that keeps one agent process alive, and the client that drives it.

`program.py` is a process of its own, started by exec; it imports nothing of ours and little of the
standard library, because every agent that starts waits for it. `pipes.py` and `terminal.py` are its
two modes, `output.py` keeps a terminal's output, `tree.py` knows the processes below it.
`client.py` is what a drain uses, `terminal_client.py` what drives a terminal.
"""
