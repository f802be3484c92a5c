"""Settings: where values come from, which wins, and how wrong ones are refused."""

from __future__ import annotations

import dataclasses
import os
import re
import stat
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from herma import config
from herma.config import MemorySettings, Option, StoreSettings
from herma.errors import ConfigError

KEY = "memory.memory_char_limit"
VARIABLE = "HERMA_MEMORY_MEMORY_CHAR_LIMIT"


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def load(home: Path, *, cwd: Path | None = None, **more: Any) -> config.Settings:
    return config.load(home=home, cwd=cwd or home, environ=more.pop("environ", {}), **more)


def refusal(home: Path, text: str | bytes) -> ConfigError:
    write(home / "config.yaml", text)
    with pytest.raises(ConfigError) as caught:
        load(home)
    assert str(home / "config.yaml") in str(caught.value)
    return caught.value


# ── the table ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_defaults(home: Path) -> None:
    settings = load(home)
    assert settings.memory == MemorySettings(
        memory_enabled=True,
        user_profile_enabled=True,
        memory_char_limit=2200,
        user_char_limit=1375,
        provider="",
        nudge_interval=10,
        write_approval=False,
        live_updates=True,
        inbox_days=30,
        lock_timeout=10.0,
    )
    assert settings.store.url == ""
    assert settings.profile == "default"
    assert settings.problems == ()
    assert set(settings.sources.values()) == {"default"}
    assert tuple(settings.sources) == tuple(config.options())


def test_every_key_is_described_and_its_default_is_allowed() -> None:
    for key, known in config.options().items():
        assert known.doc.endswith("."), key
        assert known.read(known.default) == known.default
        assert known.read(str(known.default)) == known.default


def test_only_harmless_keys_may_be_set_by_a_project() -> None:
    assert {known.key for known in config.options().values() if known.project} == {
        "memory.memory_enabled",
        "memory.user_profile_enabled",
        "memory.memory_char_limit",
        "memory.user_char_limit",
        "memory.live_updates",
        "memory.nudge_interval",
    }


# ── the home ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_home_is_the_argument_then_the_variables_then_the_users_folder(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "HERMA_HOME": str(tmp_path / "a"), "HERMES_HOME": str(tmp_path / "b")}
    assert config.resolve_home(tmp_path / "c", None, env) == tmp_path / "c"
    assert config.resolve_home(None, None, env) == tmp_path / "a"
    assert config.resolve_home(None, None, env | {"HERMA_HOME": ""}) == tmp_path / "b"
    assert config.resolve_home(None, None, {"HOME": str(tmp_path)}) == tmp_path / ".herma"
    assert config.resolve_home("~/x", None, env) == tmp_path / "x"
    assert config.resolve_home("~", None, env) == tmp_path
    config.load(home=tmp_path / "no" / "such", profile="p", cwd=tmp_path, environ={})
    assert list(tmp_path.iterdir()) == [], "loading creates nothing"


def test_a_profile_has_a_home_of_its_own(home: Path) -> None:
    write(home / "config.yaml", "memory: {memory_char_limit: 1}")
    write(home / "profiles/work/config.yaml", "memory: {memory_char_limit: 2}")
    by_argument = load(home, profile="work")
    assert (by_argument.home, by_argument.profile) == (home / "profiles/work", "work")
    assert by_argument.memory.memory_char_limit == 2
    assert load(home, environ={"HERMA_PROFILE": "work"}).profile == "work"
    assert load(home, environ={"HERMA_PROFILE": "work"}, profile="default").memory.memory_char_limit == 1
    assert load(home, environ={"HERMA_PROFILE": ""}).home == home


def test_names_of_profiles(home: Path) -> None:
    for name in ("work", "a.b", "a-b_c", "名前", "x" * 64):
        assert load(home, profile=name).home == home / "profiles" / name
    for name in ("", ".", "..", "../x", "a/b", "a\\b", ".hidden", " a", "a\n", "C:", "x" * 65, "a\0b"):
        with pytest.raises(ConfigError, match=r"cannot be a profile's name\.$"):
            load(home, profile=name)
        if name:
            with pytest.raises(ConfigError):
                load(home, environ={"HERMA_PROFILE": name})


def test_homes_that_cannot_be(tmp_path: Path) -> None:
    file = write(tmp_path / "file", "x")
    for wrong, said in ((file, "is a file"), (file / "below", "is a file"), ("", "empty"), ("a\0b", "zero byte")):
        with pytest.raises(ConfigError, match=said):
            config.resolve_home(wrong, None, {})
    with pytest.raises(ConfigError, match="no-such-user"):
        config.resolve_home("~no-such-user/x", None, {})
    with pytest.raises(ConfigError, match="is a file"):
        config.resolve_home(tmp_path, "p", {"x": str(write(tmp_path / "profiles", ""))})


# ── precedence ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_flag_over_variable_over_project_over_home_over_default(home: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    own, theirs = home / "config.yaml", project / ".herma.yaml"
    project.mkdir()

    def now(**more: Any) -> tuple[object, str]:
        settings = load(home, cwd=project, **more)
        return config.get(settings, KEY), settings.sources[KEY]

    assert now() == (2200, "default")
    write(own, "memory:\n  memory_char_limit: 1\n")
    assert now() == (1, str(own))
    write(theirs, "memory:\n  memory_char_limit: 2\n")
    assert now() == (2, str(theirs))
    assert now(environ={VARIABLE: "3"}) == (3, VARIABLE)
    assert now(environ={VARIABLE: ""}) == (2, str(theirs))
    assert now(environ={VARIABLE: "3"}, flags={KEY: 4}) == (4, "flag")
    assert now(environ={VARIABLE: "3"}, flags={KEY: "5"}) == (5, "flag")
    assert now(environ={VARIABLE: "3"}, flags={KEY: None}) == (3, VARIABLE)
    write(own, "memory: {provider: honcho}")
    assert load(home).memory.provider == "honcho"
    assert load(home, environ={"HERMA_MEMORY_PROVIDER": ""}).memory.provider == ""
    for wrong, said in (({KEY: 0}, "in a flag"), ({"memory.nonsense": 1}, "not a known configuration key")):
        with pytest.raises(ConfigError, match=said):
            load(home, flags=wrong)
    with pytest.raises(ConfigError, match=rf"memory\.memory_char_limit cannot be 'x' in the variable {VARIABLE}: it"):
        load(home, environ={VARIABLE: "x"})
    for unknown in ("memory.memory_char_limi", "home", "memory", "memory.__class__", ""):
        with pytest.raises(ConfigError):
            config.get(load(home), unknown)


# ── a project's file ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_nearest_project_file_counts_and_the_search_ends_at_the_repository(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "top"
    deep = top / "repo" / "a" / "b"
    deep.mkdir(parents=True)
    write(top / ".herma.yaml", "memory: {nudge_interval: 1}")
    env = {"HOME": str(tmp_path)}
    assert load(home, cwd=deep, environ=env).memory.nudge_interval == 1
    write(top / "repo" / ".git", "gitdir: elsewhere")
    assert load(home, cwd=deep, environ=env).memory.nudge_interval == 10
    write(top / "repo" / ".herma.yaml", "memory: {nudge_interval: 2}")
    assert load(home, cwd=deep, environ=env).memory.nudge_interval == 2
    write(top / "repo" / "a" / ".herma.yaml", "memory: {nudge_interval: 3}")
    assert load(home, cwd=deep, environ=env).memory.nudge_interval == 3
    assert config.project_file(deep, env) == top / "repo" / "a" / ".herma.yaml"
    work = tmp_path / "user" / "work"
    work.mkdir(parents=True)
    write(tmp_path / ".herma.yaml", "memory: {nudge_interval: 4}")
    assert load(home, cwd=work, environ={"HOME": str(work.parent)}).memory.nudge_interval == 10, "not above the user's"
    assert load(home, cwd=work, environ={"HOME": str(tmp_path / "other")}).memory.nudge_interval == 4
    if sys.platform != "win32":
        os.mkfifo(work / ".herma.yaml")
        assert load(home, cwd=work, environ={"HOME": str(work)}).memory == MemorySettings(), "a pipe does not block"
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert config.load(home=home, environ={}).problems == (), "a deleted working directory has no project"


def test_a_cloned_repository_cannot_redirect_memory(home: Path, tmp_path: Path) -> None:
    forbidden = [known.key for known in config.options().values() if not known.project]
    text = "".join(
        f"{name}:\n"
        + "".join(f"  {key.partition('.')[2]}: not even valid\n" for key in forbidden if key.startswith(name))
        for name in config.sections()
    )
    project = write(tmp_path / "p" / ".herma.yaml", text)
    settings = load(home, cwd=project.parent)
    assert settings.memory == MemorySettings()
    assert settings.store == StoreSettings()
    assert [problem.key for problem in settings.problems] == forbidden
    assert all(problem.forbidden and problem.pressing for problem in settings.problems)
    assert set(settings.sources.values()) == {"default"}
    assert str(settings.problems[0]) == (
        f"memory.provider in {project}, line 2 is ignored: a project's file may not set it."
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x: &x 500\nmemory: {memory_char_limit: *x}\n", "line 1, is not valid YAML: anchors and aliases"),
        ("memory:\n  <<: {provider: y}\n", "line 2, is not valid YAML: merge keys"),
        ("memory: !x {provider: y}\n", "line 1, is not valid YAML: tags are not supported"),
        ("x: " + "[" * 40 + "]" * 40 + "\n", "nested more than 20 levels deep"),
        ("x: [" + "1, " * 2_000 + "]\n", "more than 1,000 keys and values"),
        (b"#" * ((1 << 16) + 1), "larger than 64 KiB"),
    ],
)
def test_a_project_file_holds_plain_values_only(home: Path, tmp_path: Path, text: str | bytes, said: str) -> None:
    project = write(tmp_path / "p" / ".herma.yaml", text)
    with pytest.raises(ConfigError, match=re.escape(said)):
        load(home, cwd=project.parent)


# ── unknown keys ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ("memory: {memory_char_limt: 5}", "memory.memory_char_limt", "memory.memory_char_limit"),
        ("memory: {char_limit: 5}", "memory.char_limit", "memory.user_char_limit"),
        ("memmory: {memory_char_limit: 5}", "memmory", "memory"),
        ("memory_char_limit: 5", "memory_char_limit", "memory.memory_char_limit"),
        ("memory.provider: x", "memory.provider", "memory.provider"),
        ("memory: {zzz: 5}", "memory.zzz", None),
        ("agent: {max_turns: 5}", "agent", None),
        ("terminal: {backend: local}", "terminal", None),
        ("5: five", "5", None),
    ],
)
def test_unknown_keys_are_reported_with_the_nearest(home: Path, text: str, key: str, nearest: str | None) -> None:
    write(home / "config.yaml", f"# first line\n{text}\n")
    settings = load(home)
    assert settings.memory == MemorySettings()
    assert settings.problems == (config.Problem(key, f"{home / 'config.yaml'}, line 2", nearest),)
    assert settings.problems[0].pressing is (nearest is not None)
    assert key in str(settings.problems[0])


def test_problems_say_what_to_do(home: Path) -> None:
    assert str(config.Problem("a.b", "x", "a.c")) == "a.b in x is not a known key; did you mean a.c?"
    assert str(config.Problem("a.b", "x")) == "a.b in x is not a known key."
    assert "write it as a section" in str(config.Problem("a.b", "x", "a.b"))
    fixed = {
        f"{section}.{item.name}"
        for section, made in config.sections().items()
        for item in dataclasses.fields(made)
        if f"{section}.{item.name}" not in config.options()
    }
    for key in fixed:  # values in a section that nobody may set
        section, _, name = key.partition(".")
        write(home / "config.yaml", f"{section}: {{{name}: 5}}")
        assert [problem.key for problem in load(home).problems] == [key]


def test_unknown_variables_are_reported_and_reserved_ones_are_not(home: Path) -> None:
    env = dict.fromkeys(("HERMA_MODELS", "HERMA_DEBUG", "PATH", "HERMES_THING"), "x")
    assert load(home, environ=env).problems == ()
    env = {"HERMA_MEMORY_PROVIDR": "x", "HERMA_API_KEY": "x"}
    assert load(home, environ=env).problems == (
        config.Problem("HERMA_API_KEY", "the environment"),
        config.Problem("HERMA_MEMORY_PROVIDR", "the environment", "HERMA_MEMORY_PROVIDER"),
    )


# ── wrong values ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("memory_char_limit", "many", "a whole number from 1 to 1000000"),
        ("memory_char_limit", "0", "a whole number from 1 to 1000000"),
        ("memory_char_limit", "1000001", "a whole number"),
        ("memory_char_limit", "-5", "a whole number"),
        ("memory_char_limit", "2.5", "a whole number"),
        ("memory_char_limit", "true", "a whole number"),
        ("memory_char_limit", "0x10", "a whole number"),
        ("memory_char_limit", "٣", "a whole number"),
        ("memory_char_limit", "9" * 5000, "a whole number"),
        ("memory_char_limit", "[1, 2]", "a whole number"),
        ("memory_char_limit", "{a: 1}", "a whole number"),
        ("lock_timeout", "soon", "a number from 0 to 3600"),
        ("lock_timeout", ".nan", "a number"),
        ("lock_timeout", ".inf", "a number"),
        ("lock_timeout", "1e999", "a number"),
        ("lock_timeout", "-1", "a number"),
        ("write_approval", "maybe", "true or false"),
        ("write_approval", "2", "true or false"),
        ("provider", "5", "one line of text"),
        ("provider", "true", "one line of text"),
        ("provider", '"a\\nb"', "one line of text"),
        ("provider", '"a\\x1bb"', "one line of text"),
        ("provider", '"a\\u2028b"', "one line of text"),
        ("provider", "[x]", "one line of text"),
    ],
)
def test_wrong_values_name_key_place_and_what_is_expected(home: Path, key: str, text: str, expected: str) -> None:
    error = refusal(home, f"# c\nmemory:\n  live_updates: true\n  {key}: {text}\n")
    assert f"memory.{key} cannot be " in str(error)
    assert "config.yaml, line 4: it must be " in str(error)
    assert expected in str(error)
    assert error.hint == config.options()[f"memory.{key}"].doc
    assert len(str(error)) < 300 + len(str(home))


def test_both_ends_of_a_range_belong_to_it(home: Path) -> None:
    known = Option(key="a.b", default=1.0, doc="", low=None, high=None, project=False)
    bounds = [(None, None, "a number"), (0, None, "a number, 0 or more"), (None, 9, "a number, 9 or less")]
    for low, high, expected in bounds:
        assert dataclasses.replace(known, low=low, high=high).expected == expected
    for wrong in ("1e999", "-1e999", float("nan"), float("inf"), True, None, [1.0]):
        with pytest.raises(ValueError, match="not a number"):
            known.read(wrong)
    for key, known in config.options().items():
        for end in (known.low, known.high):
            if end is not None:
                assert config.get(load(home, flags={key: str(end)}), key) == end


def test_a_key_that_takes_certain_words_takes_those_of_its_type(home: Path) -> None:
    chosen = {key: known.one_of for key, known in config.options().items() if known.one_of}
    for section, made in config.sections().items():
        for name, hint in get_type_hints(made).items():
            assert chosen.get(f"{section}.{name}", ()) == get_args(hint)
    for key, words in chosen.items():
        for word in words:
            assert config.get(load(home, flags={key: f" {word.upper()} "}), key) == word
        with pytest.raises(ConfigError, match=f"{key} cannot be 'perhaps'"):
            load(home, flags={key: "perhaps"})


@pytest.mark.parametrize(("key", "much"), [("retention.by_source", "36501"), ("context.shares", "101")])
def test_names_with_numbers_are_checked_when_they_are_set(home: Path, key: str, much: str) -> None:
    bad = ("a", "a=", "=3", "a=soon", "a=-1", "a=inf", "a=nan", "a=1_0", "a=3t", f"a={much}")
    for text in ("", " , ", "cron=30", "cron = 30 , subagent=7.5,", "a b=0"):
        assert config.get(load(home, flags={key: text}), key) == text
    for text in bad:
        with pytest.raises(ConfigError, match=f"{key} cannot be .* as in: ") as error:
            load(home, flags={key: f"x=1, {text}"})
        assert error.value.hint
        write(home / "config.yaml", f"{key.partition('.')[0]}: {{{key.partition('.')[2]}: '{text}'}}")
        with pytest.raises(ConfigError, match=r"config\.yaml"):
            load(home)


# ── files that are not as they should be ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "values"),
    [
        *(
            (text, {})
            for text in ("", "# only a comment\n", "---\n", "null\n", "memory:\n", "memory: ~\n", "{}", "\ufeff")
        ),
        ("memory:\n  memory_char_limit:\n  provider: null\n", {}),  # an empty value means the default
        (b"\xef\xbb\xbfmemory:\r\n  inbox_days: 7\r\n  provider: x\r\n", {"inbox_days": 7, "provider": "x"}),
        ("x: &limit 500\nmemory: {memory_char_limit: *limit}\n", {"memory_char_limit": 500}),
        ('memory: {inbox_days: "+7", lock_timeout: 3}', {"inbox_days": 7, "lock_timeout": 3.0}),
        *(
            (f"memory: {{write_approval: {word}}}", {"write_approval": True})
            for word in ("on", "approve", "TRUE", " 1 ")
        ),
        *((f"memory: {{live_updates: {word}}}", {"live_updates": False}) for word in ("off", "disabled", "No", '"0"')),
    ],
)
def test_what_editors_and_people_write_is_read(home: Path, text: str | bytes, values: dict[str, Any]) -> None:
    write(home / "config.yaml", text)
    assert load(home).memory == dataclasses.replace(MemorySettings(), **values)
    assert [one for one in load(home).problems if one.key != "x"] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("memory:\n  a: [1\n", "line 3, is not valid YAML"),
        ("memory:\n\tprovider: x\n", "line 2, is not valid YAML"),
        ("a: 1\n---\nb: 2\n", "line 2, is not valid YAML"),
        ("a: *nobody\n", "line 1, is not valid YAML"),
        ("a: 1\nb: \x01\n", "line 2, is not valid YAML"),
        ("[" * 1000, "nested too deeply"),
        ("- a\n- b\n", "holds a list"),
        ("just words\n", "holds a single value"),
        ("a: 1\nb: 2\na: 3\n", "line 3: the key 'a' is already on line 1"),
        ("memory:\n  provider: a\n  provider: b\n", "line 3: the key 'provider' is already on line 2"),
        ("x:\n  - {y: 1, y: 2}\n", "line 2: the key 'y' is already on line 2"),
        ("? [1, 2]\n: 3\n", "line 1: a key's name must be plain text"),
        ("memory:\n  ? {x: 1}\n  : 3\n", "line 2: a key's name must be plain text"),
        ("a: 1\nmemory: 5\n", "line 2: memory must be a section"),
        ("memory: [a]\n", "line 1: memory must be a section"),
        ("x: &x {provider: y}\nmemory:\n  <<: *x\n", "line 3: merged sections"),
        (b"memory:\n  provider: caf\xe9\n", "line 2, is not UTF-8 text"),
        (b"\xff\xfem\x00", "line 1, is not UTF-8 text"),
        (b"#" * ((1 << 20) + 1), "larger than 1 MiB"),
    ],
)
def test_broken_files_are_named_with_the_line(home: Path, text: str | bytes, said: str) -> None:
    assert said in str(refusal(home, text))


# ── changing the file ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_file_is_private_and_a_folder_is_none(home: Path) -> None:
    path = home / "deep" / "config.yaml"
    config.set_value(path, KEY, " 500 ")
    assert path.read_text() == "memory:\n  memory_char_limit: 500\n"
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent)] == [0o600, 0o700]
    (home / "config.yaml").mkdir()
    with pytest.raises(ConfigError, match=r"config\.yaml is not a file"):
        load(home)
    for text in ("on", "~", "a: b # c", "'", '"\\', "- x", "日本語\u3000😀", "\ufeff\uffff👩\u200d🔬\xa0", " x "):
        config.set_value(path, "memory.provider", text)
        assert load(path.parent).memory.provider == text


def test_mode_and_symbolic_link_stay_and_nothing_is_left_behind(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles" / "herma.yaml", tmp_path / "config.yaml"
    real.parent.mkdir()
    link.symlink_to(real)
    assert load(tmp_path).memory == MemorySettings(), "a link to nothing is no file until something is set"
    write(real, "memory: {}\n").chmod(0o640)
    config.set_value(link, KEY, "500")
    assert link.is_symlink()
    assert real.read_text() == "memory: {memory_char_limit: 500}\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert [path.name for path in real.parent.iterdir()] == ["herma.yaml"]


@pytest.mark.parametrize("text", ["memory: {memory_char_limit: 5}\n", "memory: [\n"])
def test_a_refused_value_and_a_broken_file_change_nothing(home: Path, text: str) -> None:
    path = write(home / "config.yaml", text)
    rows = [(KEY, "0"), (KEY, ""), ("memory.nonsense", "1"), ("memory.provider", "a\nb"), ("nonsense", "")]
    for key, value in rows if "{" in text else [(KEY, "5")]:
        with pytest.raises(ConfigError):
            config.set_value(path, key, value)
    with pytest.raises(ConfigError):
        config.unset_value(path, "memory.nonsense" if "{" in text else KEY)
    assert path.read_text() == text


def test_the_models_name_may_stand_for_its_section(home: Path, tmp_path: Path) -> None:
    """As other software writes it that a home may be shared with."""
    write(home / "config.yaml", "model: openai/gpt-5\n")
    assert load(home).model.name == "openai/gpt-5"
    write(home / "config.yaml", "store: elsewhere\n")
    with pytest.raises(ConfigError, match="must be a section"):
        load(home)
    write(home / "config.yaml", "")
    project = write(tmp_path / "p" / ".herma.yaml", "model: evil\n")
    with pytest.raises(ConfigError, match="must be a section"):
        load(home, cwd=project.parent)
