"""Templates, offers, patches and scores of skills: pure decisions."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.errors import UsageError
from herma.skills.document import Filled, Patched, fill, patch
from herma.skills.find import alike, offer, score, success_rate, this_platform
from herma.skills.rows import SKILL_STATES, Parameter, Skill, SkillUsage

HOST = Parameter("host", "Where", required=True)
PORT = Parameter("port", "Which", default="22")
USER = Parameter("user")


HOSTILE = (
    *("; rm -rf /", "$(touch /tmp/x)", "`id`", "a' ; id ; '", 'a" ; id ; "', "a\nid", "${IFS}x", "\\", "\\'; id", "*"),
    *("~root", "a b", "", "x' # ", "!! && id", "{value} {other}", "{x.__class__}", r"\1 \g<0>", "$'\\x41'", "日本 語"),
    "-oProxyCommand=id",
)


def filled(template: str, *parameters: Parameter, language: str = "", **values: object) -> Filled:
    return fill(Skill("x", "x", template=template, parameters=parameters, language=language), values)


def test_parameters_are_put_in_and_code_is_left_alone() -> None:
    template = 'ssh {user}@{host} -p {port} "${host} {{host}} {x: 1} {undeclared} {host.real} {0} {}"'
    result = filled(template, HOST, PORT, USER, host="box", nonsense=1)
    assert result.text == 'ssh {user}@box -p 22 "${host} {{host}} {x: 1} {undeclared} {host.real} {0} {}"'
    assert (result.unknown, result.left_open) == (("nonsense",), ("user",))
    extra = Parameter("more", default="-v --fast {host}")
    assert filled("ls {more}", extra).text == "ls -v --fast {host}", "a default is the author's own code"
    assert filled("cp {value} x", value="a-1,b=%2.txt").text == "cp a-1,b=%2.txt x"
    assert filled("range({value})", language="python", value=5).text == "range(5)"
    for values in ({"port": 1}, {"host": None}):
        with pytest.raises(UsageError, match="needs a value for host"):
            filled("{host}", HOST, PORT, **values)


@pytest.mark.parametrize("language", ["", "shell", "Python", "json", "sql"])
def test_a_value_that_would_need_quoting_is_refused_in_code_and_taken_in_prose(language: str) -> None:
    more = ("1,2", "shell=True") if language not in ("", "shell") else ()  # it could add an argument
    for value in (*HOSTILE, *more):
        with pytest.raises(UsageError, match="cannot be put in safely"):
            filled("cp {value} x", language=language, value=value)
        assert filled("Dear {value},", language="text", value=value).text == f"Dear {value},"
    for tongue in ("text", language):
        with pytest.raises(UsageError, match="control characters"):
            filled("{value}", language=tongue, value="a\x1b[2Jb\x00")


@given(st.text(max_size=20))
def test_a_shell_reads_every_accepted_value_as_one_word(value: str) -> None:
    for template in ("cp {value} x", "cp '{value}' x", 'cp "{value}" x'):
        try:
            text = filled(template, value=value).text
        except UsageError:
            assert shlex.quote(value) != value or value.startswith("-")
        else:
            assert shlex.split(text) == ["cp", value, "x"]


@given(st.text(alphabet="{}$ab_ \n", max_size=60))
def test_without_values_every_template_survives(template: str) -> None:
    assert filled(template).text == template


# ── offers ──


def skill(name: str = "x", description: str = "Does x.", body: str = "Steps.", **fields: object) -> Skill:
    return Skill(name, description, body, **fields)  # type: ignore[arg-type]


def test_a_skill_for_another_system_is_not_offered_and_says_so() -> None:
    mac = skill(platforms=("macos",))
    assert not offer(mac, "linux", None).offered
    assert "macos" in offer(mac, "linux", None).reason
    assert offer(mac, "macos", None).readiness == "available"
    assert [this_platform(name) for name in ("linux", "darwin", "win32", "aix")] == ["linux", "macos", "windows", "aix"]


def test_tools_and_variables_decide_too() -> None:
    needs = skill(requires_tools=("terminal", "browser"))
    assert offer(needs, "linux", None).offered
    assert offer(needs, "linux", ["terminal", "browser"]).offered
    assert "browser" in offer(needs, "linux", ["terminal"]).reason
    stands_in = skill(fallback_for_tools=("web_search",))
    assert offer(stands_in, "linux", []).offered
    assert not offer(stands_in, "linux", ["web_search"]).offered
    keyed = offer(skill(environment=("A_KEY", "B_KEY")), "linux", None, lambda name: name == "A_KEY")
    assert (keyed.offered, keyed.readiness, keyed.missing_environment) == (True, "setup_needed", ("B_KEY",))


# ── patches ──


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("one two three", "two", "2", Patched("one 2 three", 1)),
        (
            "f():\n    if x:\n        return 1\n",
            "if x:\n  return 1",
            "pass",
            Patched("f():\n    pass\n", 1, loose=True),
        ),
        ("one\r\ntwo\r\nthree\r\n", "two\n", "2\n2b\n", Patched("one\r\n2\r\n2b\r\nthree\r\n", 1)),
        ("a:\n    b  c\nd\n", "  b c\n", "  x\n", Patched("a:\n    x\nd\n", 1, loose=True)),
        ("one\r\ntwo\n", "two", "2\n3", Patched("one\r\n2\n3\n", 1)),  # line ends of both kinds: as given
        ("ab", "a b", "x", Patched(None, 0, loose=True, previews=("ab",))),
        ("text", "  ", "y", Patched(None, 0, previews=("text",))),
        ("a\na", "a", "b", Patched(None, 2, previews=("line 1: …a a…", "line 2: …a a…"))),
        ("a  b\na\tb", "a b", "x", Patched(None, 2, loose=True, previews=("line 1: …a b a b…", "line 2: …a b a b…"))),
    ],
)
def test_a_passage_is_replaced_where_it_stands(text: str, old: str, new: str, expected: Patched) -> None:
    found = patch(text, old, new)
    assert (found.text, found.places, found.previews) == (expected.text, expected.places, expected.previews)
    assert not found.text or found.loose == expected.loose


def test_all_places_can_be_replaced_and_a_missing_passage_gets_the_most_similar_part() -> None:
    assert patch("a a", "a", "b", replace_all=True) == Patched("b b", 2)
    nothing = patch("x\n" * 2000 + "the line in question\n", "the line in question\nand another", "y")
    assert "the line in question" in nothing.previews[0]


@given(st.text("ab \n", max_size=40), st.text("ab \n", min_size=1, max_size=4), st.text("xy", min_size=1, max_size=3))
def test_a_patch_changes_one_place_or_nothing(text: str, old: str, new: str) -> None:
    result = patch(text, old, new)
    if result.text is not None:
        assert result.places == 1
        if not result.loose:
            assert result.text == text.replace(old, new)
        else:
            pieces = result.text.split(new, 1)
            assert all(piece in text for piece in pieces)


# ── scores ──

_COUNT = st.integers(0, 1000)


@given(st.integers(0, 500), st.integers(0, 500))
def test_a_new_skill_succeeds_and_its_rate_moves_towards_what_is_counted(successes: int, failures: int) -> None:
    usage = SkillUsage("x", successes=successes, failures=failures)
    assert success_rate(SkillUsage("x")) == 1.0
    assert usage.success_rate <= success_rate(usage) <= 1.0
    assert success_rate(usage) > 0.0, "no failure is the last word"
    assert success_rate(usage) - usage.success_rate <= 1 / (successes + failures + 1)
    assert success_rate(usage, 0.0) == usage.success_rate
    assert success_rate(SkillUsage("x", successes=successes, failures=failures + 1)) < success_rate(usage)


def test_the_score_has_the_documented_defaults() -> None:
    assert score(0.5, SkillUsage("x")) == 0.5
    assert score(0.5, SkillUsage("x", uses=10)) == pytest.approx(0.6)
    assert score(0.5, SkillUsage("x", uses=500)) == pytest.approx(0.7)
    assert score(0.5, SkillUsage("x", successes=1, failures=1)) == pytest.approx(0.5 * 2 / 3)
    assert score(0.5, SkillUsage("x", state="deprecated")) == pytest.approx(0.2)


@given(st.floats(0, 1), st.floats(0, 1), _COUNT, _COUNT, _COUNT, st.sampled_from(SKILL_STATES))
def test_more_similar_more_successful_and_more_used_is_never_worse(
    low: float, high: float, uses: int, good: int, bad: int, state: str
) -> None:
    low, high = sorted((low, high))
    usage = SkillUsage("x", uses=uses, successes=good, failures=bad, state=state)  # type: ignore[arg-type]
    assert score(low, usage) <= score(high, usage)
    assert -0.3 <= score(low, usage) <= 1.2
    used_more = SkillUsage("x", uses=uses + 1, successes=good + 1, failures=bad, state=state)  # type: ignore[arg-type]
    assert score(high, used_more) >= score(high, usage) - 1e-9


# ── near-duplicates ──


def test_a_skill_that_says_nearly_the_same_is_found() -> None:
    long = " ".join(f"word{n}" for n in range(60))
    ((_, why, _),) = alike(skill("a", "One thing here.", long), [skill("b", "Quite another matter.", long)])
    assert why.startswith("its body")
    assert alike(skill("bake-bread", "Bake a loaf of bread at home."), [skill("b", "Deploy a service.")]) == []
