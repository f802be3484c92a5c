"""No text can make the scanner slow: every repetition in every pattern is bounded, or stands alone."""

from __future__ import annotations

import re
import re._constants as constants  # type: ignore[import-not-found,unused-ignore]
import re._parser as parser  # type: ignore[import-not-found,unused-ignore]
from typing import Any

import pytest

from herma.safety import scan as characters
from herma.safety import scan as disguise
from herma.safety import scan as fold
from herma.safety import scan as lookalikes
from herma.safety import scan as matching
from herma.safety import scan as phrase
from herma.safety import scan as veiled
from herma.safety import secrets
from herma.safety.rules import RULES


def rule_expressions() -> list[tuple[str, str]]:
    found = []
    for rule in RULES:
        found += [(rule.id, phrase.expression(line)) for line in phrase.lines(rule.phrases)]
        found += [(rule.id, expression) for pattern in rule.patterns for expression in pattern.expressions]
    found += [("credential", expression) for _, expression, _ in secrets._FORMATS]
    found += [("credential", expression) for expression in (secrets._ASSIGNED, secrets._BEARER, secrets._ADDRESS)]
    return found


def helper_expressions() -> list[tuple[str, str]]:
    modules = (characters, disguise, fold, lookalikes, matching, phrase, veiled)
    return [
        (f"{module.__name__}.{name}", value.pattern)
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, re.Pattern)
    ]


def repeats(tree: Any, depth: int = 0) -> list[tuple[int, int, int]]:
    """Each repetition of a parsed expression: how deep it is nested in others, its least and its most."""
    found: list[tuple[int, int, int]] = []
    for operation, argument in tree:
        inner: list[Any] = []
        deeper = depth
        if operation in (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT):
            least, most, body = argument
            found.append((depth, least, most))
            inner, deeper = [body], depth + (most > 1)
        elif operation is constants.SUBPATTERN:
            inner = [argument[-1]]
        elif operation is constants.BRANCH:
            inner = argument[1]
        elif operation in (constants.ASSERT, constants.ASSERT_NOT):
            inner = [argument[1]]
        elif operation is constants.ATOMIC_GROUP:
            inner = [argument]
        for one in inner:
            found += repeats(one, deeper)
    return found


@pytest.mark.parametrize(("name", "expression"), rule_expressions())
def test_every_repetition_of_a_rule_is_bounded(name: str, expression: str) -> None:
    for depth, _, most in repeats(parser.parse(expression)):
        assert most != constants.MAXREPEAT, f"{name}: unbounded repetition"
        assert depth < 3, f"{name}: repetitions nested too deep"


def gaps_in_a_row(tree: Any) -> int:
    """The most wide repetitions that one way through the expression meets, one after the other."""
    most = 0
    for operation, argument in tree:
        if operation in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            most += gaps_in_a_row(argument[2]) + (argument[1] - argument[0] >= 24)
        elif operation is constants.SUBPATTERN:
            most += gaps_in_a_row(argument[-1])
        elif operation is constants.BRANCH:
            most += max(map(gaps_in_a_row, argument[1]))
    return most


@pytest.mark.parametrize(("name", "expression"), rule_expressions())
def test_wide_gaps_of_a_rule_are_few(name: str, expression: str) -> None:
    """Each wide gap multiplies the work at one place: it stays a constant, and with four of them not a large one."""
    assert gaps_in_a_row(parser.parse(expression)) <= 4, name


@pytest.mark.parametrize(("name", "expression"), helper_expressions())
def test_an_unbounded_repetition_stands_alone(name: str, expression: str) -> None:
    """Taking text apart needs `[a-z]+`; that is linear as long as it is not inside another repetition."""
    for depth, _, most in repeats(parser.parse(expression)):
        assert most != constants.MAXREPEAT or depth == 0, f"{name}: unbounded repetition inside another"


def test_a_pattern_does_not_reach_across_lines() -> None:
    """The rules are tried line by line."""
    for name, expression in rule_expressions():
        if name != "credential":
            assert not re.search(expression, "ignore all previous\ninstructions"), name
