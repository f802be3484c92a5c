"""SKILL.md: what a person wrote is understood or refused with a reason, what we write is read back; patch and fill."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.homes import table

from herma.errors import UsageError
from herma.skills.document import (
    MOST_BYTES,
    MOST_TEXT,
    Filled,
    Patched,
    category_problem,
    compose,
    content_problem,
    counted_up,
    file_problem,
    fill,
    headings,
    name_problem,
    parse,
    patch,
    read_skill,
    split,
)
from herma.skills.rows import Parameter, Skill, UnreadableSkill

PLAIN = "---\nname: tidy\ndescription: Tidy a folder up.\n---\n\n# Tidy\n\n1. Look.\n"
FULL = """\
---
name: deploy
description: >
  Bring a service
  to a server.
version: 1.2.0
license: MIT
platforms: [linux, darwin]
required_environment_variables:
  - name: HOST_TOKEN
    prompt: The token
  - OTHER_TOKEN
  - name: NICE_TO_HAVE
    optional: true
metadata:
  hermes:
    tags: [ops, servers]
    related_skills: [rollback]
    requires_tools: [terminal]
  herma:
    version: 4
    triggers: ["ship it", "put it on the server"]
    template: |
      scp {file} {host}:/srv
      echo ${HOME} {{file}} {"a": 1}
    parameters:
      file: What to copy
      host: {description: Where to, default: localhost}
    required: [file]
    dependencies: [build]
    pitfalls:
      - Check the disk first
---
Steps.
"""


def cases(kind: str) -> list[tuple[str, ...]]:
    return table(__file__, "skill_texts.tsv", kind)


def skill_of(text: str, path: str = "") -> Skill:
    skill = parse(text, path)
    assert isinstance(skill, Skill), skill
    return skill


def test_everything_that_a_skill_may_say_is_read() -> None:
    skill = skill_of(FULL, "ops/deploy")
    assert (skill.name, skill.description, skill.category) == ("deploy", "Bring a service to a server.", "ops")
    assert (skill.version, skill.release, skill.license) == (4, "1.2.0", "MIT")
    assert skill.platforms == ("linux", "macos")
    assert skill.environment == ("HOST_TOKEN", "OTHER_TOKEN")
    assert skill.triggers == ("ship it", "put it on the server")
    assert skill.template.endswith('{"a": 1}')
    assert skill.parameters == (
        Parameter("file", "What to copy", required=True),
        Parameter("host", "Where to", default="localhost"),
    )
    assert (skill.required, skill.dependencies, skill.pitfalls) == (("file",), ("build",), ("Check the disk first",))
    assert (skill.tags, skill.related, skill.requires_tools) == (("ops", "servers"), ("rollback",), ("terminal",))
    assert skill.warnings == ()


def test_front_matter_that_is_not_yaml_is_read_by_its_lines() -> None:
    skill = skill_of("---\nname: tidy\ndescription: Say: \"hello\"\ntags: [a, 'b']\nplatforms: [linux]\n---\nBody\n")
    assert (skill.description, skill.tags, skill.platforms) == ('Say: "hello"', ("a", "b"), ("linux",))
    assert "read line by line" in skill.warnings[0]


@pytest.mark.parametrize("change", [lambda t: "\ufeff" + t, lambda t: t.replace("\n", "\r\n"), lambda t: "\n\n" + t])
def test_marks_and_line_ends_of_other_editors_change_nothing(change: object) -> None:
    changed = change(PLAIN)  # type: ignore[operator]
    skill = read_skill(changed.encode(), "tidy")
    assert isinstance(skill, Skill)
    assert (skill.name, skill.description, skill.body) == ("tidy", "Tidy a folder up.", "# Tidy\n\n1. Look.")


@pytest.mark.parametrize(
    ("said", "text"),
    [
        *cases("odd"),
        ("1,100 characters", f"---\nname: tidy\ndescription: {'x' * 1100}\n---\nBody\n"),
        ("the limit for writing", f"---\nname: tidy\ndescription: Tidy.\n---\n{'x' * (MOST_TEXT + 1)}\n"),
    ],
)
def test_what_is_odd_is_tolerated_and_said(said: str, text: str) -> None:
    skill = skill_of(text, "some/folder")
    assert any(said in warning for warning in skill.warnings), skill.warnings


@pytest.mark.parametrize(
    ("reason", "data"),
    [
        *((reason, text.encode()) for reason, text in cases("refused")),
        ("not UTF-8 text (byte 10)", b"---\nname: \xff\xfe\n---\nBody\n"),
        ("null", b"---\nname: a\ndescription: b\n---\n\x00\n"),
        ("may have 1,048,576", b"x" * (MOST_BYTES + 1)),
    ],
)
def test_what_cannot_be_a_skill_is_refused_with_the_reason(reason: str, data: bytes) -> None:
    refused = read_skill(data, "")
    assert isinstance(refused, UnreadableSkill)
    assert reason in refused.reason
    assert refused.reason


def _merged() -> str:
    layers = "".join(f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 25))
    return f"a0: &a0 {{x: 1}}\n{layers}"


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (_merged(), "anchors and aliases are not supported"),
        ("metadata:\n  <<: {x: 1}\n", "merge keys (<<) are not supported"),
        ("license: !!binary SGVsbG8=\n", "tags are not supported"),
        ("license: " + "[" * 300 + "]" * 300 + "\n", "nested more than 20 levels deep"),
        ("tags: [" + "'a', " * 2_000 + "]\n", "more than 1,000 keys and values"),
    ],
)
def test_yaml_beyond_plain_values_is_read_line_by_line(head: str, said: str) -> None:
    skill = skill_of(f"---\nname: bomb\ndescription: d\n{head}---\nBody\n")
    assert (skill.name, skill.description, skill.body) == ("bomb", "d", "Body")
    assert any(said in warning for warning in skill.warnings)


def test_numbers_that_python_cannot_print_stay_text_and_a_list_may_end_with_a_comma() -> None:
    skill = skill_of(f"---\nname: a\ndescription: b\nversion: 0x{'f' * 6_000}\ntags: [one, two, ]\n---\nBody\n")
    assert skill.release.startswith("0xfff")
    assert skill.tags == ("one", "two")


@given(st.text(max_size=300), st.binary(max_size=300))
def test_nothing_breaks_the_reader(text: str, data: bytes) -> None:
    for candidate in (text, f"---\n{text}\n---\nBody", f"---\nname: a\ndescription: b\n{text}"):
        assert isinstance(parse(candidate, "folder"), Skill | str)
    assert isinstance(read_skill(b"---\nname: a\n" + data, "a"), Skill | UnreadableSkill)


def test_headings_are_those_outside_code_and_a_body_may_hold_lines_of_dashes() -> None:
    assert headings("# One\n```\n# not\n```\n## Two ##\n#three\n") == ["One", "Two"]
    assert split("---\na: 1\n---\nx\n---\ny\n") == ("a: 1", "x\n---\ny\n", True)


# ── writing ──

_TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp", "Cf", "Cn", "Co")), max_size=30
)
_SAID = _TEXT.map(lambda text: " ".join(text.split())).filter(bool)
_NAME = st.from_regex(r"[a-z0-9][a-z0-9-]{0,10}[a-z0-9]", fullmatch=True)
_SKILLS = st.builds(
    Skill,
    name=_NAME,
    description=_SAID,
    body=_SAID.map(lambda text: f"# Steps\n\n{text}"),
    license=_SAID,
    version=st.none() | st.integers(0, 99),
    triggers=st.lists(_SAID, unique=True, max_size=3).map(tuple),
    template=st.lists(_TEXT, max_size=3).map("\n".join).filter(lambda text: not text.endswith("\n")),
    parameters=st.lists(
        st.builds(
            Parameter,
            st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True),
            st.just("") | _SAID,
            st.booleans(),
            st.none() | st.sampled_from(["x", "1", "a b", ""]),
        ),
        unique_by=lambda each: each.name,
        max_size=3,
    ).map(tuple),
    dependencies=st.lists(_NAME, unique=True, max_size=2).map(tuple),
    pitfalls=st.lists(_SAID, unique=True, max_size=2).map(tuple),
    platforms=st.lists(st.sampled_from(["linux", "macos", "windows"]), unique=True, max_size=2).map(tuple),
)


@settings(max_examples=40)
@given(_SKILLS)
def test_what_is_composed_is_read_as_the_same(skill: Skill) -> None:
    text = compose(skill)
    assert content_problem(text, skill.name) == "" or len(skill.body.strip()) < 8
    read_back = skill_of(text)
    assert replace(read_back, category="") == skill


@pytest.mark.parametrize(
    ("said", "text"),
    [
        *cases("strict"),
        ("1,025 characters", PLAIN.replace("Tidy a folder up.", "x" * 1025)),
        ("the limit is 100,000", PLAIN + "x" * MOST_TEXT),
        ("surrogate", PLAIN + "\ud800"),
        ("must be text", b"bytes"),
        ("must be text", None),
    ],
)
def test_the_writer_is_strict(said: str, text: str) -> None:
    assert said in content_problem(text, "tidy")
    assert content_problem(PLAIN, "tidy") == ""


def test_names_that_other_systems_cannot_keep_are_refused() -> None:
    for name in ("", "Tidy", "-x", "a/b", "..", "a" * 65, "con", "nul.txt", "references", "node_modules", "a.", "ä"):
        assert name_problem(name), name
    for name in ("tidy", "3d-model", "a.b_c", "x"):
        assert name_problem(name) == "", name
    for category in ("../x", "a//b", "/a", "a/", "A", "a/b/c/d", "references"):
        assert category_problem(category), category
    assert category_problem("") == category_problem("ml/training") == ""


def test_files_stay_inside_the_four_folders() -> None:
    for path in (
        *("", "a.md", "SKILL.md", "../x", "references/../../x", "/etc/passwd", "references//a", "references/./a"),
        *("references", "other/a.md", "references\\a", "C:/x", "references/.hidden", "references/con.md", "~/x"),
        *("references/a\nb", "references/a ", "scripts/" + "x/" * 8 + "a"),
    ):
        assert file_problem(path), path
    for path in ("references/a.md", "scripts/deep/er/run.py", "assets/Bild ä.png", "templates/t.txt"):
        assert file_problem(path) == "", path


def test_only_our_own_version_is_counted_up() -> None:
    counted = counted_up(FULL, 4)
    assert counted == FULL.replace("version: 4", "version: 5")
    assert counted_up(FULL.replace("\n", "\r\n"), 4) == counted.replace("\n", "\r\n")
    assert counted_up(FULL, 3) == FULL
    other = "---\nname: a\nversion: 4\nmetadata:\n  other:\n    version: 4\n---\nversion: 4\n"
    assert counted_up(other, 4) == other


# ── patches ──


@pytest.mark.parametrize("case", cases("patch"))
def test_a_passage_is_replaced_where_it_stands(case: tuple[str, ...]) -> None:
    after, text, old, new, places, loose, previews = case
    found = patch(text, old, new)
    assert (found.text, found.places) == (None if after == "-" else after, int(places))
    assert "|".join(found.previews) == previews
    assert found.text is None or found.loose is bool(loose)


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


# ── templates ──

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
    for language, value, text in (
        ("python", -5, "-5"),
        ("python", True, "True"),
        ("json", True, "true"),
        ("", True, "true"),
    ):
        assert filled("add {value}", language=language, value=value).text == f"add {text}"
    for values in ({"port": 1}, {"host": None}):
        with pytest.raises(UsageError, match="needs a value for host"):
            filled("{host}", HOST, PORT, **values)


@pytest.mark.parametrize("language", ["", "shell", "Python", "json", "sql"])
def test_a_value_that_would_need_quoting_is_refused_in_code_and_taken_in_prose(language: str) -> None:
    more = ("1,2", "shell=True")  # it could add an argument
    for value in more:
        with pytest.raises(UsageError, match="cannot be put in safely"):
            filled("run({value})", language=language if language != "shell" else "", value=value)
    for value in (*HOSTILE, *(more if language not in ("", "shell") else ())):
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
