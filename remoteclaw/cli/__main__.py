"""`python -m remoteclaw.cli`: the command line, where the command itself is not installed."""

from remoteclaw.cli import main

main(prog_name="remoteclaw")
