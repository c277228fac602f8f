"""The holder, a program that keeps one agent process alive, and the clients that drive it.

The program is `program.py` with its two modes `pipes.py` and `terminal.py`; `output.py` keeps a
terminal's output, and `tree.py` finds and signals the processes below the holder. It imports
nothing else of RemoteClaw and little of the standard library, because each start of an agent waits
for it. Drains use `client.py`; `terminal_client.py` drives a terminal.
"""
