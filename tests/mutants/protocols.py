"""Mutants of `remoteclaw/protocols/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a gemini prompt that names unavailable tools",
        before="replace(self, tools=None, system_prompt=self.plain_prompt)",
        after="replace(self, tools=None)",
        test="test_gemini_ignores_an_untrusted_workspaces_settings_and_has_no_tools",
    ),
    Mutant(
        "a branch that may use any MCP server",
        before="if not self.branch or name == OWN_SERVER",
        after="if True",
        test="test_a_branch_may_not_use_other_mcp_servers_without_asking",
    ),
)
