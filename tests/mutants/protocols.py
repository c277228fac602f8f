"""Mutants of `remoteclaw/protocols/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a prompt of gemini's that names tools which it doesn't have",
        before="replace(self, tools=None, system_prompt=self.plain_prompt)",
        after="replace(self, tools=None)",
        test="test_gemini_obeys_nothing_of_a_workspace_and_has_no_tools_then",
    ),
    Mutant(
        "a branch that does with another server what it likes",
        before="if not self.branch or name == OWN_SERVER",
        after="if True",
        test="test_a_branch_asks_for_tools_of_other_servers",
    ),
)
