"""Templates, offers, patches and scores of skills: pure decisions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.skills.document import NoPlace, Patched, SeveralPlaces, patch
from herma.skills.find import Weights, alike, offer, score, success_rate, this_platform
from herma.skills.template import Filled, MissingParameters, fill, placeholders
from herma.skills.types import SKILL_STATES, Parameter, Skill, SkillUsage

HOST = Parameter("host", "Where", required=True)
PORT = Parameter("port", "Which", default="22")
USER = Parameter("user")


def filled(template: str, *parameters: Parameter, **values: object) -> Filled:
    result = fill(template, parameters, values)
    assert isinstance(result, Filled)
    return result


def test_parameters_are_put_in_and_code_is_left_alone() -> None:
    template = 'ssh {user}@{host} -p {port} "${host} {{host}} {x: 1} {undeclared} {host.real} {0} {}"'
    result = filled(template, HOST, PORT, USER, host="box", nonsense=1)
    assert result.text == 'ssh {user}@box -p 22 "${host} {{host}} {x: 1} {undeclared} {host.real} {0} {}"'
    assert result.unknown == ("nonsense",)
    assert result.left_open == ("user",)


def test_a_required_parameter_that_is_missing_is_named() -> None:
    assert fill("{host}", (HOST, PORT), {"port": 1}) == MissingParameters(("host",))
    assert fill("{host}", (HOST, PORT), {"host": None}) == MissingParameters(("host",))


def test_values_are_text_and_nothing_else() -> None:
    assert filled("{host} {user}", HOST, USER, host="{user} {port}", user="x").text == "'{user} {port}' x"
    assert filled("{host}", HOST, host="{host.__class__}").text == "'{host.__class__}'"
    assert filled("{host}", HOST, host=r"\1 \g<0>").text == r"'\1 \g<0>'"
    extra = Parameter("more", default="-v --fast")
    assert filled("ls {more}", extra).text == "ls -v --fast", "a default is the author's own code"
    assert filled("ls {more}", extra, more="-v --fast").text == "ls '-v --fast'"
    assert filled("{free}", free=True).text == "true"


@given(st.text(alphabet="{}$ab_ \n", max_size=60))
def test_without_values_every_template_survives(template: str) -> None:
    assert filled(template).text == template
    assert all("{" + name + "}" in template for name in placeholders(template))


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


def test_a_passage_is_replaced_where_it_stands() -> None:
    assert patch("one two three", "two", "2") == Patched("one 2 three", 1)
    assert patch("a a", "a", "b", replace_all=True) == Patched("b b", 2)
    several = patch("a\na", "a", "b")
    assert isinstance(several, SeveralPlaces)
    assert several.count == 2
    assert several.previews[1].startswith("line 2")


def test_blanks_are_forgiven_but_words_are_not() -> None:
    text = "def f():\n    if x:\n        return 1\n"
    assert patch(text, "if x:\n  return 1", "pass") == Patched("def f():\n    pass\n", 1, loose=True)
    assert isinstance(patch("ab", "a b", "x"), NoPlace)
    assert isinstance(patch("a  b\na\tb", "a b", "x"), SeveralPlaces)


def test_what_is_nowhere_gets_the_nearest_part_of_the_text() -> None:
    nothing = patch("x\n" * 2000 + "the line in question\n", "the line in question\nand another", "y")
    assert isinstance(nothing, NoPlace)
    assert "the line in question" in nothing.preview
    assert isinstance(patch("text", "  ", "y"), NoPlace)


@given(st.text("ab \n", max_size=40), st.text("ab \n", min_size=1, max_size=4), st.text("xy", min_size=1, max_size=3))
def test_a_patch_changes_one_place_or_nothing(text: str, old: str, new: str) -> None:
    result = patch(text, old, new)
    if isinstance(result, Patched):
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
    assert success_rate(usage, Weights(virtual_successes=0)) == usage.success_rate
    assert success_rate(SkillUsage("x", successes=successes, failures=failures + 1)) < success_rate(usage)


def test_the_score_has_the_documented_defaults() -> None:
    assert score(0.5) == 0.5
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
    known = [
        skill("docker-deploy", "Deploy a service with docker compose to a remote server over ssh."),
        skill("write-tests", "Write unit tests for a Python module, with fixtures and parameters."),
    ]
    again = skill("deploy-docker", "Deploy a service to a remote server over ssh with docker compose.")
    assert [each.skill.name for each in alike(again, known)] == ["docker-deploy"]
    assert alike(skill("bake-bread", "Bake a loaf of bread at home."), known) == []
    long = " ".join(f"word{n}" for n in range(60))
    assert alike(skill("a", "One thing here.", long), [skill("b", "Quite another matter.", long)])[0].why.startswith(
        "its body"
    )


def test_a_patch_ends_lines_as_the_text_does_and_doubles_no_blanks() -> None:
    text = "one\r\ntwo\r\nthree\r\n"
    found = patch(text, "two\n", "2\n2b\n")
    assert isinstance(found, Patched)
    assert (found.text, found.loose) == ("one\r\n2\r\n2b\r\nthree\r\n", False)
    found = patch("a:\n    b  c\nd\n", "  b c\n", "  x\n")
    assert isinstance(found, Patched)
    assert (found.text, found.loose) == ("a:\n    x\nd\n", True)
    found = patch("one\r\ntwo\n", "two", "2\n3")  # of both kinds: left as given
    assert isinstance(found, Patched)
    assert found.text == "one\r\n2\n3\n"
