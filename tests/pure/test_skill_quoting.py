"""Values in templates: whatever is given, it stays one value. A shell, Python and JSON are asked themselves."""

from __future__ import annotations

import ast
import json
import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herma.skills.template import PLACEHOLDER, Filled, Place, UnsafeValue, fill, language_of, places

HOSTILE = (
    "; rm -rf /",
    "$(touch /tmp/x)",
    "`id`",
    "a' ; id ; '",
    'a" ; id ; "',
    "a\nid",
    "${IFS}x",
    "\\",
    "\\'; id",
    "*",
    "~root",
    "a b",
    "",
    "x' # ",
    "!! && id",
    "{value} {other}",
    "$'\\x41'",
    "日本 語",
)
VALUES = st.one_of(
    st.sampled_from(HOSTILE), st.text(alphabet=" '\"\\$`;&|<>(){}*?!#~\n\tab=-", max_size=20), st.text(max_size=12)
).filter(
    lambda text: not any(ord(c) < 9 or 10 < ord(c) < 32 or 126 < ord(c) < 160 or c in "\u2028\u2029" for c in text)
)


def filled(template: str, value: object, language: str = "") -> str:
    result = fill(template, (), {"value": value}, language)
    assert isinstance(result, Filled), result
    return result.text


# ── a shell ──

SHELL = (
    "printf '%s' {value}",
    'printf "%s" "{value}"',
    "printf '%s' '{value}'",
    "printf '%s' pre{value}post",
    'printf "%s" "a \\" $HOME {value}" # it\'s',
    "printf '%s' \"$(printf '%s' {value})\"",
    "printf '%s' \"$(printf '%s' \"{value}\")\"",
    "( printf '%s' {value} )",
    "x={value}; printf '%s' \"$x\"",
    "printf '%s' \\' {value}",
)


@pytest.mark.parametrize("template", [one for one in SHELL if "$(" not in one])  # `shlex` knows no substitutions
@given(value=VALUES)
@settings(max_examples=60)
def test_a_shell_reads_every_value_as_one_word(template: str, value: str) -> None:
    text = filled(template, value)
    sign = "MARK"
    expected = shlex.split(filled(template, sign), comments=True)
    found = shlex.split(text, comments=True)
    assert found == [word.replace(sign, _as_read(value, template)) for word in expected]


def _as_read(value: str, template: str) -> str:
    """`shlex` leaves a backslash before $ and ` inside double quotes, where a shell takes it away."""
    if '"%s" "' in template:
        return value.replace("$", "\\$").replace("`", "\\`")
    return value


@pytest.mark.parametrize("template", SHELL[:7])
@pytest.mark.parametrize("value", HOSTILE)
def test_a_real_shell_prints_what_was_given(template: str, value: str) -> None:
    done = subprocess.run(["sh", "-c", filled(template, value)], capture_output=True, check=True, env={"HOME": "/h"})
    said = done.stdout.decode()
    wanted = value.rstrip("\n") if "$(" in template else value
    assert said in (wanted, f"pre{wanted}post", f'a " /h {wanted}')


@pytest.mark.parametrize(
    ("template", "place"),
    [
        ("cp {value} x", "bare"),
        ("cp '{value}' x", "single"),
        ('cp "{value}" x', "double"),
        ('echo "$(ls {value})"', "bare"),
        ("echo `ls {value}`", "odd"),
        ("echo ${x:-{value}}", "odd"),
        ("echo $((1 + {value}))", "odd"),
        ("echo $'{value}'", "odd"),
        ("ls # {value}", "odd"),
        ("ls # it's\ncp {value} x", "bare"),
        ("cat <<END\n{value}\nEND", "odd"),
        ("cat <<< {value}", "bare"),
        ("ssh box ls {value}", "twice"),
        ("sudo ssh box \\\n  'ls {value}'", "twice"),
        ('bash -c "ls {value}"', "twice"),
        ("find . -exec ls {value} +", "twice"),
        ("sed 's/a/{value}/' x", "twice"),
        ("sed -n 1p {value}", "bare"),
        ("echo it is at {value}", "bare"),
        ("f() { cp {value} x; }", "bare"),
    ],
)
def test_where_a_placeholder_stands(template: str, place: Place) -> None:
    assert list(places(template, "shell").values()) == [place]
    result = fill(template, (), {"value": "$(id); 'x"}, "shell")
    assert isinstance(result, UnsafeValue if place in ("odd", "twice") else Filled)
    assert isinstance(fill(template, (), {"value": "a-1.txt"}, "shell"), Filled), "plain characters are safe anywhere"


def test_a_value_that_looks_like_an_option_is_noted() -> None:
    for template in ("scp {value} x", "scp '{value}' x", '"{value}"'):
        result = fill(template, (), {"value": "-oProxyCommand=id"})
        assert isinstance(result, Filled)
        assert "begins with a dash" in result.notes[0]
    result = fill("scp ./{value} x", (), {"value": "-o"})
    assert isinstance(result, Filled)
    assert not result.notes


# ── Python and JSON ──


@given(VALUES)
def test_python_reads_every_value_as_one_literal(value: str) -> None:
    template = "import os\nx = ['{value}', \"a {value}\", '''{value}''', b or '\\'{value}', {value}]"
    found = ast.parse(filled(template, value)).body[1]
    assert isinstance(found, ast.Assign)
    assert isinstance(found.value, ast.List)
    single, double, triple, or_, bare = found.value.elts
    assert isinstance(or_, ast.BoolOp)
    assert [ast.literal_eval(one) for one in (single, double, triple)] == [value, f"a {value}", value]
    assert ast.literal_eval(or_.values[1]) == f"'{value}"
    assert isinstance(bare, ast.Name | ast.Attribute) or ast.literal_eval(bare) in (value, _number(value))


def _number(value: str) -> object:
    try:
        return ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return value


def test_python_keeps_names_and_numbers_and_refuses_where_escaping_cannot_help() -> None:
    assert filled("import os\nrange({value})", 5) == "import os\nrange(5)"
    assert filled("import {value}", "os.path") == "import os.path"
    assert filled("print({value})", True) == "print(True)"
    assert filled("print({value})", "__import__('os')") == "print(\"__import__('os')\")"
    for template in ("print(r'{value}')", "print(f'{value}')", "print(1)  # {value}", "print(r'\\'{value}')"):
        assert isinstance(fill(template, (), {"value": "'); id("}), UnsafeValue)


@given(VALUES)
def test_json_reads_every_value_as_one_value(value: str) -> None:
    found = json.loads(filled('{"a": "x {value}", "b": [{value}], "c": {"{value}": {value}}}', value))
    assert found["a"] == f"x {value}"
    assert found["b"][0] in (value, _json(value))
    assert found["c"] == {value: found["b"][0]}


def _json(value: str) -> object:
    try:
        return json.loads(value)
    except ValueError:
        return value


# ── which language ──


@pytest.mark.parametrize(
    ("template", "declared", "language"),
    [
        ("scp {a} b", "", "shell"),
        ("#!/usr/bin/env python3\nx", "", "python"),
        ("#!/bin/bash\nx", "", "shell"),
        ("#!/usr/bin/perl\nx", "", "other"),
        ("import os\nos.remove({a})", "", "python"),
        ('{"a": {b}}', "", "json"),
        ('[ -f "{a}" ] && rm "{a}"', "", "shell"),
        ("{a} --all", "", "shell"),
        ("select {a}", "SQL", "other"),
        ("Dear {a},", "text", "text"),
        ("x", " Bash ", "shell"),
    ],
)
def test_what_a_template_is_written_in(template: str, declared: str, language: str) -> None:
    assert language_of(template, declared) == language


def test_prose_takes_every_text_and_unknown_languages_only_plain_ones() -> None:
    assert filled("Dear {value},", "O'Neil & Sons; $5", "text") == "Dear O'Neil & Sons; $5,"
    assert filled("select * from {value}", "people", "sql") == "select * from people"
    assert isinstance(fill("select * from {value}", (), {"value": "x; drop table x"}, "sql"), UnsafeValue)
    for language in ("text", "shell", "python", "json", "sql"):
        assert isinstance(fill("{value}", (), {"value": "a\x1b[2Jb\x00"}, language), UnsafeValue)


@given(st.text(alphabet="{}$ab'\"\\`#()<\n ssh-c", max_size=80))
def test_every_placeholder_has_a_place_in_any_code(template: str) -> None:
    for language in ("shell", "python", "json"):
        found = places(template, language_of("", language))
        assert all(PLACEHOLDER.match(template, at) for at in found)
        assert len(found) <= len(PLACEHOLDER.findall(template))
