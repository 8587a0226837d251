"""The policy: defaults, file, environment, presets, and rejected values."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from endturn.continuation.controller import ContinuationController
from endturn.continuation.policy import TABLES, ContinuationPolicy, presets
from endturn.errors import UsageError
from endturn.generate import config
from endturn.generate.config import RuleConfig
from tests.support.processes import REPOSITORY
from tests.support.turns import Played, ask, cut, said

# --- The file -----------------------------------------------------------------------------------------------------


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "endturn.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_sets_keys_in_its_table_agent(tmp_path: Path) -> None:
    """The path is an argument, or in ENDTURN_CONFIG_FILE; the argument wins. Tables of the rules are accepted."""
    path = written(
        tmp_path, "[agent]\nmax_iterations = 7\n[agent.prices]\n'gpt-4.1' = [2, 8]\n[services.a]\npage = false\n"
    )
    expected = ContinuationPolicy(max_iterations=7, prices={"gpt-4.1": (2, 8)})
    assert ContinuationPolicy.load(path, environ={}) == expected
    assert ContinuationPolicy.load(str(path), environ={"ENDTURN_CONFIG_FILE": "/no/such"}) == expected
    assert ContinuationPolicy.load(environ={"ENDTURN_CONFIG_FILE": str(path)}) == expected
    assert ContinuationPolicy.load(environ={"ENDTURN_CONFIG_FILE": ""}) == ContinuationPolicy()


def test_the_rules_file_and_the_policys_may_be_one(tmp_path: Path) -> None:
    """Each reads its own tables."""
    fields = [field.alias or name for name, field in RuleConfig.model_fields.items()]
    assert sorted(TABLES) == sorted(["agent", *fields])
    path = written(tmp_path, "period = '30d'\n[agent]\nmax_iterations = 7\n[alerts]\n[services]\n")
    assert ContinuationPolicy.load(path, environ={}).max_iterations == 7
    assert config.read(path) == RuleConfig()


def test_the_example_in_the_guide_is_a_policy(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", (REPOSITORY / "docs/configuration.md").read_text(), re.DOTALL)
    policy = ContinuationPolicy.load(written(tmp_path, example), environ={})
    assert policy.model_fields_set > presets()["forgeflare"].keys()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param(
            {"continuation_max_attempts": -1}, "continuation_max_attempts cannot be -1", id="a negative number"
        ),
        pytest.param({"dispatch": "always"}, "dispatch cannot be 'always'", id="an unknown word"),
        pytest.param(
            {"xyz": 3}, "'xyz' is not a setting; there are: continuation_attempts_per, co", id="an unknown setting"
        ),
        pytest.param(
            {"max_attempts": 3},
            "'max_attempts' is not a setting; did you mean 'continuation_max_attempts'?",
            id="a misspelt setting",
        ),
        pytest.param({"prompt": "  "}, "prompt cannot be '  '", id="a blank prompt"),
        pytest.param(
            {"min_overlap": 20, "max_overlap": 10}, "min_overlap (20) is larger", id="a minimum above its maximum"
        ),
        pytest.param({"max_cost": 1}, "max_cost needs prices: prices=", id="a cost limit without prices"),
        pytest.param(
            {"prices": {"m": [1, -1]}}, "prices.m.1 cannot be -1: it should be greater", id="a negative price"
        ),
        pytest.param({"prices": {"m": [1]}}, "prices.m.1 is missing", id="one price of two"),
        pytest.param({"prices": {"m": [1, math.nan]}}, "prices.m.1 cannot be nan", id="a price that is no number"),
        pytest.param({"deadline_s": math.nan}, "deadline_s cannot be nan", id="a time that is no number"),
        pytest.param(
            {"on_context_exceeded": 3}, "it should be 'abort' or, in code, a function", id="a hook that is no function"
        ),
        pytest.param(
            {"transcript": ""}, "transcript cannot be '': it should be the path to a file", id="an empty path"
        ),
        pytest.param(
            {"preset": "mine"}, "unknown preset 'mine'; the presets are: anthropic, b", id="an unknown preset"
        ),
    ],
)
def test_rejects_a_wrong_setting(settings: dict[str, Any], message: str) -> None:
    """The message names the key, the value and what it should be."""
    with pytest.raises(UsageError, match=re.escape(message)) as loaded:
        ContinuationPolicy.load(None, {}, **settings)
    with pytest.raises(UsageError, match=re.escape(str(loaded.value))):
        ContinuationPolicy(**settings)


def test_names_each_of_several_wrong_settings() -> None:
    settings: dict[str, Any] = {"max_iterations": 0, "mode": "x"}
    with pytest.raises(UsageError) as loaded:
        ContinuationPolicy.load(None, {}, **settings)
    assert "max_iterations cannot be 0: " in str(loaded.value)
    assert "; mode cannot be 'x': it should be 'response' or 'task'" in str(loaded.value)
    with pytest.raises(UsageError, match=re.escape(str(loaded.value))):
        ContinuationPolicy(**settings)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (
            "ENDTURN_AGENT_CONTINUATION_MAX_ATEMPTS",
            "3",
            "'continuation_max_atempts' is not a setting (from "
            "ENDTURN_AGENT_CONTINUATION_MAX_ATEMPTS); did you mean 'continuation_max_attempts'?",
        ),
        (
            "ENDTURN_AGENT_MAX_ITERATIONS",
            "many",
            "max_iterations cannot be 'many' (from ENDTURN_AGENT_MAX_ITERATIONS): it should be a valid integer",
        ),
        (
            "ENDTURN_AGENT_MAX_ITERATIONS",
            "0",
            "cannot be '0' (from ENDTURN_AGENT_MAX_ITERATIONS): it should be greater than",
        ),
        (
            "ENDTURN_AGENT_WALLET_GUARD",
            "maybe",
            "wallet_guard cannot be 'maybe' (from ENDTURN_AGENT_WALLET_GUARD): it should be a",
        ),
        ("ENDTURN_AGENT_DISPATCH", "all", "it should be 'verified_terminal', 'tool_call_only' or 'any_parsed'"),
        ("ENDTURN_AGENT_PRICES", "cheap", "ENDTURN_AGENT_PRICES is not JSON: write it like {"),
        ("ENDTURN_AGENT_PRICES", "[1, 2]", "prices cannot be [1, 2] (from ENDTURN_AGENT_PRICES): it should be a"),
        ("ENDTURN_AGENT_PRICES", '{"m": [1]}', "prices.m.1 is missing (from ENDTURN_AGENT_PRICES)"),
        (
            "ENDTURN_AGENT_ON_CONTEXT_EXCEEDED",
            "compact",
            "on_context_exceeded cannot be 'compact' (from "
            "ENDTURN_AGENT_ON_CONTEXT_EXCEEDED): it should be 'abort' or, in code, a function",
        ),
        (
            "ENDTURN_AGENT_PRESET",
            "mine",
            "unknown preset 'mine' (from ENDTURN_AGENT_PRESET); the presets are: anthropic, ",
        ),
    ],
)
def test_rejects_a_wrong_environment_variable(variable: str, value: str, message: str) -> None:
    """The message also names the variable."""
    with pytest.raises(UsageError, match=re.escape(message)) as loaded:
        ContinuationPolicy.load(None, {variable: value})
    with pytest.raises(UsageError, match=re.escape(str(loaded.value))):
        ContinuationPolicy.from_environment({variable: value})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            ("[agent]\nmax_attempts = 3"), "'max_attempts' is not a setting (from the", id="an unknown setting"
        ),
        pytest.param(("[agent.price]\nm = [1, 2]"), "; did you mean 'prices'?", id="an unknown table of the policy"),
        pytest.param(
            ("[agents]\nmax_iterations = 3"),
            "has an unknown key 'agents'; did you mean 'agent'?",
            id="a misspelt table",
        ),
        pytest.param("[other]", "has an unknown key 'other'; there are: agent, alerts", id="an unknown table"),
        pytest.param(
            "max_iteration = 3", "has an unknown key 'max_iteration'; there are: agent", id="an unknown key at the top"
        ),
        pytest.param(("[agent]\nmode = 'x'"), "mode cannot be 'x' (from the configuration file ", id="an unknown word"),
        pytest.param(
            ("[agent.prices]\ngpt-4.1 = [2, 8]"),
            "prices.gpt-4 cannot be {'1': [2, 8]}",
            id="a model name without quotes",
        ),
        pytest.param(("[agent]\non_context_exceeded = 'compact'"), "it should be 'abort' or, in code", id="a hook"),
        pytest.param(
            ("[agent]\npreset = 'mine'"),
            "unknown preset 'mine' (from the configuration file",
            id="an unknown preset",
        ),
        pytest.param(
            "max_iterations = 3",
            "has 'max_iterations' outside its table `agent`: write [agent]",
            id="a setting outside its table",
        ),
        pytest.param("agent = 3", "must be a table: write [agent]", id="a value in place of the table"),
        pytest.param("[agent", "is not TOML: ", id="no TOML"),
    ],
)
def test_rejects_a_wrong_file(text: str, message: str, tmp_path: Path) -> None:
    """The message also names the file, in one line."""
    path = written(tmp_path, text)
    with pytest.raises(UsageError, match=re.escape(message)) as loaded:
        ContinuationPolicy.load(path, {})
    assert repr(str(path)) in str(loaded.value)
    assert "\n" not in str(loaded.value)


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    """A missing file is an error, and so is one that is not text."""
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        ContinuationPolicy.load(environ={"ENDTURN_CONFIG_FILE": str(tmp_path / "none.toml")})
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not TOML"):
        ContinuationPolicy.load(tmp_path / "bytes.toml", environ={})


def test_code_wins_over_the_environment_over_the_file_over_the_preset(tmp_path: Path) -> None:
    """Each key is taken from the source with the highest precedence, and so is the preset's name."""
    path = written(tmp_path, "[agent]\npreset = 'wave'\nprompt = 'file'\nmax_iterations = 1\nmax_overlap = 100")
    environ = {
        "ENDTURN_CONFIG_FILE": str(path),
        "ENDTURN_AGENT_PRESET": "forgeflare",
        "ENDTURN_AGENT_MAX_ITERATIONS": "2",
        "ENDTURN_AGENT_CONTINUATION_MAX_ATTEMPTS": "7",
    }
    policy = ContinuationPolicy.load(environ=environ, max_iterations=3)
    expected = {"prompt": "file", "max_iterations": 3, "max_overlap": 100, "continuation_max_attempts": 7}
    assert policy == ContinuationPolicy.preset("forgeflare", **expected)
    assert ContinuationPolicy.load(environ=environ, preset="botnexus").dispatch == "tool_call_only"
    assert ContinuationPolicy.load(environ={"ENDTURN_CONFIG_FILE": str(path)}).continuation_attempts_per == "answer"


def test_an_overridden_value_is_not_validated() -> None:
    """A value from code has precedence, and its error names the code."""
    environ = {"ENDTURN_AGENT_MAX_ITERATIONS": "many"}
    assert ContinuationPolicy.load(environ=environ, max_iterations=3).max_iterations == 3
    with pytest.raises(UsageError, match="max_iterations cannot be -1: it"):
        ContinuationPolicy.load(environ=environ, max_iterations=-1)


def test_a_controller_without_a_policy_uses_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that the environment names, and its preset, reach a turn."""
    monkeypatch.setenv("ENDTURN_CONFIG_FILE", str(written(tmp_path, "[agent]\npreset = 'forgeflare'")))
    monkeypatch.setenv("ENDTURN_AGENT_CONTINUATION_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("ENDTURN_AGENT_TRANSCRIPT", str(tmp_path / "turns of today.jsonl"))
    provider = Played(cut("a "), cut("b "), said("never"))
    assert ContinuationController(provider).run(ask()).outcome == "retry_limit"
    assert provider.requests[1].messages[-1].text == "Continue from where you left off."
    assert (tmp_path / "turns of today.jsonl").stat().st_size


def test_no_file_is_read_unless_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files in the working directory are ignored."""
    for name in ("endturn.toml", "pyproject.toml", ".env"):
        (tmp_path / name).write_text("[agent]\nmax_iterations = 1\n")
    monkeypatch.chdir(tmp_path)
    assert ContinuationPolicy.load(environ={}) == ContinuationPolicy()


# --- What a policy is ---------------------------------------------------------------------------------------------


def test_every_key_is_in_the_guide() -> None:
    """docs/configuration.md has a row for each key, and names no other."""
    section = (REPOSITORY / "docs/configuration.md").read_text().split("## The controller")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
    keys = [key for row in rows for key in re.findall(r"`(\w+)`", row)]
    assert sorted(key for key in keys if key in presets()) == list(presets())
    assert sorted(set(keys) - presets().keys()) == sorted(["preset", *ContinuationPolicy.model_fields])


@pytest.mark.behaviour(26)
def test_the_default_prompt_is_that_of_the_source_designs() -> None:
    assert ContinuationPolicy().prompt == (
        "Previous response was truncated by token limit.\n"
        "Continue exactly from where you left off.\n"
        "If you intended a tool call, emit one complete tool call payload only.\n"
        "Do not repeat already-sent text."
    )


def test_every_type_of_value_can_be_an_environment_variable() -> None:
    policy = ContinuationPolicy.from_environment(
        {
            "ENDTURN_AGENT_DEADLINE_S": "1.5",
            "ENDTURN_AGENT_MAX_COST": "0.25",
            "ENDTURN_AGENT_MIN_OVERLAP": "40",
            "ENDTURN_AGENT_MAX_OVERLAP": "40",
            "ENDTURN_AGENT_PRICES": '{"gpt-5-mini": [0.25, 2.0]}',
            "ENDTURN_AGENT_SUSPECT_FULL_BUDGET": "false",
            "ENDTURN_AGENT_WALLET_GUARD": "0",
            "ENDTURN_AGENT_MODE": "task",
            "ENDTURN_AGENT_PROMPT": "Go on.\nPlease.",
            "ENDTURN_AGENT_ON_CONTEXT_EXCEEDED": "abort",
        }
    )
    assert policy == ContinuationPolicy(
        deadline_s=1.5,
        max_cost=0.25,
        min_overlap=40,
        max_overlap=40,
        prices={"gpt-5-mini": (0.25, 2.0)},
        suspect_full_budget=False,
        wallet_guard=False,
        mode="task",
        prompt="Go on.\nPlease.",
        on_context_exceeded="abort",
    )


def test_a_policy_is_frozen() -> None:
    policy = ContinuationPolicy()
    with pytest.raises(ValueError, match="frozen"):
        policy.max_iterations = 1  # type: ignore[misc]
