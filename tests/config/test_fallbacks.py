"""The setting `fallbacks`: what it may name."""

import pytest

from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.errors import ConfigError

BOTH = '[agents.main]\nfallbacks = ["a-model", "agent:codex"]\n[agents.codex]\nruntime = "codex"\n'


def test_fallbacks_are_models_and_other_agents_in_their_order(home: Home) -> None:
    home.config_file.write_text(BOTH)
    agent = load_config(home.config_file, {}).agents["main"]

    assert agent.fallbacks == ("a-model", "agent:codex")
    assert agent.fallback_agents == ("codex",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[agents.main]\nfallbacks = ["agent:none"]\n[agents.other]',
            "main.fallbacks has 'agent:none', which is no agent: there are 'main', 'other'",
        ),
        (
            '[agents.main]\nfallbacks = ["agent:main"]',
            "main.fallbacks has 'agent:main', the agent itself: take it out",
        ),
        (
            '[agents.a]\nfallbacks = ["agent:b"]\n[agents.b]\nfallbacks = ["x", "agent:a"]',
            "a.fallbacks is part of a circle, a → b → a: take one out",
        ),
        (
            '[agents.a]\nfallbacks = ["agent:b"]\n[agents.b]\nfallbacks = ["agent:c"]\n'
            '[agents.c]\nfallbacks = ["agent:a"]',
            "a.fallbacks is part of a circle, a → b → c → a: ",
        ),
        (
            '[agents.d]\n[agents.a]\nfallbacks = ["agent:d", "agent:b"]\n'
            '[agents.b]\nfallbacks = ["agent:d", "agent:c"]\n[agents.c]\nfallbacks = ["agent:b"]',
            "b.fallbacks is part of a circle, b → c → b: ",
        ),
        ('[agents.main]\nfallbacks = ["x", "x"]', "has 'x' twice: name each fallback once"),
        ('[agents.main]\nfallbacks = ["agent:"]', "has 'agent:': write a model's name"),
        ('[agents.main]\nfallbacks = [""]', "has '': write a model's name"),
        ('[agents.main]\nfallbacks = ["a model"]', "has 'a model': write a model's name"),
        ('[agents.main]\nfallbacks = ["--danger"]', "has '--danger': write a model's name"),
        ('[agents.main]\nfallbacks = "x"', "[agents.main] fallbacks"),
    ],
)
def test_a_fallback_that_cannot_be_meant_is_refused_with_a_sentence(
    home: Home, text: str, problem: str
) -> None:
    home.config_file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_config(home.config_file, {})

    assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_a_fallbacks_own_fallbacks_are_no_circle(home: Home) -> None:
    home.config_file.write_text(
        '[agents.a]\nfallbacks = ["agent:b", "agent:c"]\n[agents.b]\nfallbacks = ["agent:c"]\n'
        "[agents.c]\n"
    )

    assert load_config(home.config_file, {}).agents["b"].fallbacks == ("agent:c",)
