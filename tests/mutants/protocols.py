"""Mutants of `remoteclaw/protocols/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a branch that may use any MCP server",
        before="if not self.branch or name == OWN_SERVER",
        after="if True",
        test="test_a_branch_may_not_use_other_mcp_servers_without_asking",
    ),
)
