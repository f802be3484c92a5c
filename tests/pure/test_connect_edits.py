"""Changing one place in JSON with comments, TOML and YAML keeps every other byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from herma.connect.clients import is_hook
from herma.connect.edits import BadFile, get, parse_json, put, put_item, read_json, take_out

ENTRY = {"command": "/opt/herma", "args": ["mcp"]}
KEYS = ("mcpServers", "herma")
HOOK = {"hooks": [{"type": "command", "command": "/opt/herma hook stop --client x"}]}

FILES = {
    "empty": "",
    "object": "{}",
    "object on two lines": "{\n}\n",
    "only a comment": "{\n  // nothing yet\n}\n",
    "one line": '{"theme": "dark"}',
    "other server": '{\n  "mcpServers": {\n    "other": {"command": "x"}\n  }\n}\n',
    "comments everywhere": (
        '// first\n{\n\t/* a, b */ "theme": "dark", // why, really\n'
        '\t"mcpServers": {\n\t\t// ours come last\n\t\t"other": { "command": "x" } // keep, this\n\t},\n'
        '\t"last": [1, 2, 3], // and this\n\t// end\n}\n// after\n'
    ),
    "trailing commas": '{\n    "a": [1, 2,],\n    "mcpServers": {\n        "other": {},\n    },\n}\n',
    "json5": "{\n  theme: 'da\\'rk',\n  mcpServers: { other: { command: 'x', n: +.5 } },\n}\n",
    "strings with signs": '{"a": "x // no comment, {really}", "b": "\\"}"}\n',
    "byte order mark": '\ufeff{\n  "a": 1\n}\n',
    "empty server list": '{\n  "mcpServers": {}\n}\n',
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_json_gets_an_entry_and_loses_nothing(text: str) -> None:
    before = read_json(text)
    then = put(text, "json", KEYS, ENTRY)
    assert get(then, "json", KEYS) == ENTRY
    after = read_json(then)
    after["mcpServers"].pop("herma")
    assert {**before, "mcpServers": before.get("mcpServers", {})} == after
    for piece in (
        "// first",
        "/* a, b */",
        "// why, really",
        "// ours come last",
        "// keep, this",
        "// end",
        "// after",
    ):
        assert (piece in text) == (piece in then)
    assert put(then, "json", KEYS, ENTRY) == then
    changed = put(then, "json", KEYS, {**ENTRY, "args": ["other"]})
    assert put(changed, "json", KEYS, ENTRY) == then
    without = take_out(then, "json", KEYS)
    assert read_json(without) == {**before, "mcpServers": before.get("mcpServers", {})}
    for piece in ("// why, really", "// ours come last", "// keep, this", "// end"):
        assert (piece in text) == (piece in without)


def test_json_is_indented_as_the_file_is() -> None:
    assert put('{\n\t"a": 1\n}\n', "json", KEYS, {"command": "x"}) == (
        '{\n\t"a": 1,\n\t"mcpServers": {\n\t\t"herma": {\n\t\t\t"command": "x"\n\t\t}\n\t}\n}\n'
    )
    assert put('{\n    "a": 1 // one\n}\n', "json", ("b",), 2) == '{\n    "a": 1, // one\n    "b": 2\n}\n'
    assert put("", "json", ("b",), 2) == '{\n  "b": 2\n}\n'


def test_an_item_takes_the_place_of_the_one_that_is_ours() -> None:
    old = '{"hooks": [{"command": "/old/herma hook x --client y"}]}'
    text = f'{{"hooks": {{"Stop": [{{"hooks": [{{"command": "other"}}]}}, {old}]}}}}'
    then = put_item(text, "json", ("hooks", "Stop"), HOOK, is_hook)
    assert read_json(then)["hooks"]["Stop"] == [{"hooks": [{"command": "other"}]}, HOOK]
    assert put_item(then, "json", ("hooks", "Stop"), HOOK, is_hook) == then
    assert read_json(take_out(then, "json", ("hooks", "Stop"), is_hook))["hooks"]["Stop"] == [
        {"hooks": [{"command": "other"}]}
    ]
    fresh = put_item("{}", "json", ("hooks", "Stop"), HOOK, is_hook)
    assert read_json(take_out(fresh, "json", ("hooks", "Stop"), is_hook)) == {"hooks": {"Stop": []}}
    assert take_out("{}", "json", ("hooks", "Stop"), is_hook) == "{}"


_JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=4), _JSON, max_size=4), st.sampled_from([None, 2, "\t"]), _JSON)
def test_any_object_keeps_its_other_values(document: dict[str, Any], indent: int | str | None, value: object) -> None:
    text = json.dumps(document, indent=indent)
    assert read_json(text) == document
    then = put(text, "json", ("zz", "herma"), value)
    assert read_json(then) == {**document, "zz": {"herma": value}}
    assert read_json(take_out(then, "json", ("zz", "herma"))) == {**document, "zz": {}}
    assert read_json(take_out(then, "json", ("zz",))) == document
    for name in document:
        rest = {key: one for key, one in document.items() if key != name}
        assert read_json(take_out(text, "json", (name,))) == rest


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"a": 1', "line 1: a comma or } is missing"),
        ('{\n"a" 1}', "line 2: a colon is missing"),
        ('{"a": }', "line 1: a value is missing"),
        ("{} {}", "line 1: unexpected text"),
        ('{"a": "no end}', "line 1: a value is missing"),
        ("[" * 500, "it is nested too deeply"),
        ('{"mcpServers": []}', "mcpServers is not an object"),
    ],
)
def test_a_broken_file_is_refused_with_the_line(text: str, where: str) -> None:
    with pytest.raises(BadFile, match=where):
        put(text, "json", KEYS, ENTRY)


def test_a_long_file_is_read_in_time_that_grows_with_it() -> None:
    text = json.dumps({f"k{number}": {"a": [1, 2, {"b": "c" * 50}]} for number in range(5_000)}, indent=2)
    assert len(parse_json(text).members) == 5_000
    assert get(put(text, "json", KEYS, ENTRY), "json", KEYS) == ENTRY


TOML = """\
# mine
model = "gpt"   # spaces

[mcp_servers.other]
command = "x"
env = { A = "1" }

[tui] # last
theme = "a"
"""


def test_toml_keeps_its_comments() -> None:
    then = put(TOML, "toml", ("mcp_servers", "herma"), {**ENTRY, "env": {"B": "2"}})
    assert get(then, "toml", ("mcp_servers", "herma")) == {**ENTRY, "env": {"B": "2"}}
    assert get(then, "toml", ("mcp_servers", "other", "env")) == {"A": "1"}
    for line in TOML.splitlines():
        assert line in then
    assert put(then, "toml", ("mcp_servers", "herma"), {**ENTRY, "env": {"B": "2"}}) == then
    assert "[mcp_servers.herma]" in put("", "toml", ("mcp_servers", "herma"), ENTRY)
    assert get(take_out(then, "toml", ("mcp_servers", "herma")), "toml", ("mcp_servers", "herma")) is None
    with pytest.raises(BadFile):
        put("a = ", "toml", ("b",), 1)


YAML_FILES = {
    "empty": "",
    "other keys": "# mine\nmodel: gpt   # spaces\nlist:\n- a   # no indent\n- b\n",
    "holder": "extensions:\n    # four\n    other:\n        cmd: x\nlast: 'q'\n",
    "empty holder": "extensions:\nlast: 1\n",
    "null holder": "extensions: {}\nlast: 1\n",
    "no line end": "last: 1",
}


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffa: 1\n",
        "# only a comment\n",
        'a: ~\nb: +1\nc: "\\u00e9"\n',
        "a: " + "word " * 60 + "\n",
        "a:\n  list:\n        - x\n  b: [1,   2]   # mine\nmcp_servers:\n  other:\n    args: [a,   b]\n",
    ],
)
def test_yaml_keeps_every_other_byte(text: str) -> None:
    then = put(text, "yaml", ("mcp_servers", "herma"), {"command": "herma"})
    assert get(then, "yaml", ("mcp_servers", "herma")) == {"command": "herma"}
    left = iter(then)
    assert all(char in left for char in text)
    assert set(text.splitlines()) <= set(then.splitlines())


@pytest.mark.parametrize("text", YAML_FILES.values(), ids=YAML_FILES)
def test_yaml_keeps_its_comments(text: str) -> None:
    keys = ("extensions", "herma")
    then = put(text, "yaml", keys, {"cmd": "/opt/herma", "args": ["mcp"], "envs": {}})
    read = YAML(typ="safe").load(then)
    assert read["extensions"].pop("herma") == {"cmd": "/opt/herma", "args": ["mcp"], "envs": {}}
    before = YAML(typ="safe").load(text) or {}
    assert {**before, "extensions": before.get("extensions") or {}} == read
    if "extensions: {}" not in text:
        for line in text.splitlines():
            assert line in then.splitlines()
    assert put(then, "yaml", keys, {"cmd": "/opt/herma", "args": ["mcp"], "envs": {}}) == then
    hooked = put_item(then, "yaml", ("hooks", "pre_llm_call"), {"command": "/herma hook prompt --client h"}, is_hook)
    assert get(hooked, "yaml", ("hooks", "pre_llm_call")) == [{"command": "/herma hook prompt --client h"}]
    assert get(take_out(hooked, "yaml", ("hooks", "pre_llm_call"), is_hook), "yaml", ("hooks", "pre_llm_call")) == []
    with pytest.raises(BadFile):
        put("a: [", "yaml", ("b",), 1)


@pytest.mark.parametrize(
    "text", ["mcp_servers = {}\n", 'mcp_servers = { other = { command = "x" } } # c\n', "a = 1\r\n# c\r\n"]
)
def test_toml_is_written_as_the_file_is(text: str) -> None:
    then = put(text, "toml", ("mcp_servers", "herma"), ENTRY)
    assert get(then, "toml", ("mcp_servers", "herma")) == ENTRY
    assert get(take_out(then, "toml", ("mcp_servers", "herma")), "toml", ("mcp_servers", "herma")) is None


@pytest.mark.parametrize(
    "text", ["hooks = []\n", 'hooks = [{event="Stop", command="x"}]\n', '[[hooks]]\nevent = "Z"\n']
)
def test_a_list_in_toml_keeps_its_form(text: str) -> None:
    item = {"event": "Stop", "command": "herma hook stop --client kimi"}
    then = put_item(text, "toml", ("hooks",), item, is_hook)
    assert get(then, "toml", ("hooks",)) == [*get(text, "toml", ("hooks",)), item]
    assert take_out(then, "toml", ("hooks",), is_hook) == text


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("toml", "hooks = 3\n", "hooks is not a list"),
        ("yaml", "hooks: {a: 1}\n", "hooks is not a list"),
        ("yaml", "base: &x\n- a\nhooks: *x\n", "add the entry by hand"),
    ],
)
def test_what_cannot_be_changed_is_refused(name: Any, text: str, why: str) -> None:
    with pytest.raises(BadFile, match=why):
        put_item(text, name, ("hooks",), HOOK, is_hook)
