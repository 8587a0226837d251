"""The policy: its defaults, its file, its environment, its presets beneath them, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from endturn.continuation.policy import TABLES, ContinuationPolicy, presets
from endturn.controller import ContinuationController
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
    """A path may be given, or named by ENDTURN_CONFIG_FILE; the one that is given wins. Tables of the rules pass."""
    path = written(
        tmp_path, "[agent]\nmax_iterations = 7\n[agent.prices]\n'gpt-4.1' = [2, 8]\n[services.a]\npage = false\n"
    )
    expected = ContinuationPolicy(max_iterations=7, prices={"gpt-4.1": (2, 8)})
    assert ContinuationPolicy.load(path, environ={}) == expected
    assert ContinuationPolicy.load(str(path), environ={"ENDTURN_CONFIG_FILE": "/no/such"}) == expected
    assert ContinuationPolicy.load(environ={"ENDTURN_CONFIG_FILE": str(path)}) == expected
    assert ContinuationPolicy.load(environ={"ENDTURN_CONFIG_FILE": ""}) == ContinuationPolicy()


def test_the_rules_file_and_the_policys_may_be_one(tmp_path: Path) -> None:
    """Each reads its own tables of it."""
    fields = [field.alias or name for name, field in RuleConfig.model_fields.items()]
    assert sorted(TABLES) == sorted(["agent", *fields])
    path = written(tmp_path, "period = '30d'\n[agent]\nmax_iterations = 7\n[alerts]\n[services]\n")
    assert ContinuationPolicy.load(path, environ={}).max_iterations == 7
    assert config.read(path) == RuleConfig()


def test_the_example_in_the_guide_is_a_policy(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", (REPOSITORY / "docs/configuration.md").read_text(), re.DOTALL)
    policy = ContinuationPolicy.load(written(tmp_path, example), environ={})
    assert policy.model_fields_set > presets()["forgeflare"].keys()


WRONG = [json.loads(line) for line in Path(__file__).with_name("wrong_policies.jsonl").read_text("utf-8").splitlines()]
"""Keys, variables and files that make no sense, each with what is said of it: a text, or its parts."""


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong["why"])
def test_what_makes_no_sense_is_refused_with_a_sentence(wrong: dict[str, Any], tmp_path: Path) -> None:
    """It names the key, the value and what that should be; also the variable or the file where it is from."""
    keys, environ, path = wrong.get("keys", {}), wrong.get("environ", {}), None
    if "file" in wrong:
        path = written(tmp_path, wrong["file"])
    with pytest.raises(UsageError) as raised:
        ContinuationPolicy.load(path, environ, **keys)
    told, says = str(raised.value), wrong["says"]
    assert all(part in told for part in ([says] if isinstance(says, str) else says))
    assert path is None or (repr(str(path)) in told and "\n" not in told)
    if "file" not in wrong:
        with pytest.raises(UsageError, match=re.escape(told)):
            ContinuationPolicy(**keys) if keys else ContinuationPolicy.from_environment(environ)


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """One that is named and not there is an error; so is one that is no text."""
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        ContinuationPolicy.load(environ={"ENDTURN_CONFIG_FILE": str(tmp_path / "none.toml")})
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not TOML"):
        ContinuationPolicy.load(tmp_path / "bytes.toml", environ={})


def test_code_wins_over_the_environment_over_the_file_over_the_preset(tmp_path: Path) -> None:
    """Each key is taken from the strongest source that gives it, the preset's name among them."""
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


def test_a_wrong_value_that_is_overridden_is_not_looked_at() -> None:
    """Code is asked first, and said to be wrong where it is."""
    environ = {"ENDTURN_AGENT_MAX_ITERATIONS": "many"}
    assert ContinuationPolicy.load(environ=environ, max_iterations=3).max_iterations == 3
    with pytest.raises(UsageError, match="max_iterations cannot be -1: it"):
        ContinuationPolicy.load(environ=environ, max_iterations=-1)


def test_a_controller_without_a_policy_takes_the_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that the environment names, and its preset, reach a turn."""
    monkeypatch.setenv("ENDTURN_CONFIG_FILE", str(written(tmp_path, "[agent]\npreset = 'forgeflare'")))
    monkeypatch.setenv("ENDTURN_AGENT_CONTINUATION_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("ENDTURN_AGENT_TRANSCRIPT", str(tmp_path / "turns of today.jsonl"))
    provider = Played(cut("a "), cut("b "), said("never"))
    assert ContinuationController(provider).run(ask()).outcome == "retry_limit"
    assert provider.requests[1].messages[-1].text == "Continue from where you left off."
    assert (tmp_path / "turns of today.jsonl").stat().st_size


def test_nothing_is_read_unless_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies in the working directory."""
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
