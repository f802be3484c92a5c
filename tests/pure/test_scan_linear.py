"""No text can make the scanner slow: every repetition in every pattern is bounded, or stands alone."""

from __future__ import annotations

import re
import re._constants as constants  # type: ignore[import-not-found,unused-ignore]
import re._parser as parser  # type: ignore[import-not-found,unused-ignore]
from typing import Any

from herma.safety import fold, scan, secrets

RULES = scan._rules()


def rule_expressions() -> list[tuple[str, str]]:
    found = [(one.rule.id, RULES.expression(one.source) if one.is_phrase else one.source) for one in RULES.candidates]
    found += [("credential", rule[1]) for formats in secrets._formats().values() for _, rule in formats]
    found += [("credential", one) for one in (secrets._ASSIGNED, secrets._BEARER, secrets._ADDRESS, secrets._BASIC)]
    return found


def helper_expressions() -> list[tuple[str, str]]:
    found = [(name, expression) for name, expression in RULES.pieces.items()]
    for module in (fold, scan, secrets):
        found += [(name, value.pattern) for name, value in vars(module).items() if isinstance(value, re.Pattern)]
    return found


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


def test_the_time_of_a_rule_is_bounded() -> None:
    """Each wide gap multiplies the work at one place: with at most four of them it stays a small constant."""
    for name, expression in rule_expressions():
        tree = parser.parse(expression)
        for depth, _, most in repeats(tree):
            assert most != constants.MAXREPEAT, f"{name}: unbounded repetition in {expression}"
            assert depth < 3, f"{name}: repetitions nested too deep in {expression}"
        assert gaps_in_a_row(tree) <= 4, f"{name}: too many gaps in {expression}"
        if name != "credential":  # the rules are tried line by line
            assert not re.search(expression, "ignore all previous\ninstructions"), name


def test_an_unbounded_repetition_stands_alone() -> None:
    """Taking text apart needs `[a-z]+`; that is linear as long as it is not inside another repetition."""
    for name, expression in helper_expressions():
        for depth, _, most in repeats(parser.parse(expression)):
            assert most != constants.MAXREPEAT or depth == 0, f"{name}: unbounded repetition inside another"
