"""Folder names: any key has one, safe on every file system, and no two keys share one."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.memory.entries import Place
from herma.memory.files import folder_name, path_of
from herma.types import Scope

_ODD = (
    *("..", ".", "/", "../../etc", "a/b", "a\\b", "C:\\x", "CON", "nul", "~", "日本", "é", " ", "\x00", "\udc80"),
    "a" * 5000,
)
KEYS = st.text(min_size=1, max_size=60) | st.sampled_from(_ODD)


@given(KEYS)
def test_a_folder_name_is_safe_everywhere(key: str) -> None:
    name = folder_name(key)
    assert re.fullmatch(r"(?:[a-z0-9]+(?:-[a-z0-9]+)*-)?[0-9a-f]{8}", name)
    assert len(name) <= 50
    assert name == folder_name(key)


@given(st.lists(KEYS, unique=True, max_size=10))
def test_different_keys_have_different_folders(keys: list[str]) -> None:
    assert len({folder_name(key) for key in keys}) == len(keys)


@given(KEYS, KEYS)
def test_no_key_leads_out_of_the_memories(project: str, user: str) -> None:
    scope = Scope(project=project, user=user)
    for place in (Place.of("memory", scope), Place.of("user", scope)):
        path = PurePosixPath(path_of(Path("/h"), place))
        assert path.parts[:3] in (("/", "h", "memories"),)
        assert ".." not in path.parts
        assert len(path.parts) == 6


@pytest.mark.parametrize(
    ("key", "readable"),
    [("/home/me/My App", "my-app"), ("C:\\code\\Tool\\", "tool"), ("me@x.org", "me-x-org"), ("日本", "")],
)
def test_the_name_is_readable(key: str, readable: str) -> None:
    assert folder_name(key).rpartition("-")[0] == readable


def test_where_things_lie() -> None:
    home = Path("/h")
    assert path_of(home, Place("memory")) == home / "memories/MEMORY.md"
    assert path_of(home, Place("user")) == home / "memories/USER.md"
    assert path_of(home, Place.of("memory", Scope(project="p", user="u"))).parts[3] == "projects"
    assert path_of(home, Place.of("user", Scope(project="p", user="u"))).parts[3] == "users"
    assert path_of(home, Place.of("user", Scope(project="p"))) == home / "memories/USER.md"
