"""Which part of a conversation is summarized."""

from __future__ import annotations

import pytest

from herma.search.expand import cut
from herma.search.match import units
from herma.search.query import parse


@pytest.mark.parametrize(
    ("question", "text", "most", "part"),
    [
        ("argon2", "we chose argon2", 100, "we chose argon2"),
        ("nginx proxy", "proxy " + "x" * 2_000 + " the proxy sat before nginx " + "y" * 2_000, 400, "before nginx"),
        ("nginx", "start" + "z" * 500, 100, "start"),
        ("登录失败", "天气" * 300 + "登录失败的原因是密钥过期" + "天气" * 300, 200, "密钥过期"),
        ("nginx proxy tls", "nginx proxy " * 100_000, 100_000, "nginx proxy"),
    ],
)
def test_the_part_that_matters_is_taken(question: str, text: str, most: int, part: str) -> None:
    found = cut(text, units(parse(question, 0.0)), most)
    assert part in found
    assert len(found) == min(most, len(text))
