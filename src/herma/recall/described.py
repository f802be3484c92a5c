"""How a query was read, in one plain sentence: what a person would want to correct."""

from __future__ import annotations

import time
from collections.abc import Sequence

from herma.recall.dates import Span
from herma.recall.query import Query, Term


def describe(query: Query) -> str:
    """One sentence."""
    parts = []
    must = {term for group in query.all_of for term in group}
    free = [term for term in query.any_of if term not in must]
    if query.all_of:
        parts.append("must contain " + " and ".join(_either(group) for group in query.all_of))
    if free:
        verb = "ranked by" if query.all_of else ("with" if len(free) == 1 else "with any of")
        parts.append(f"{verb} {_list(free)}")
    if query.none_of:
        parts.append(f"without {_list(query.none_of)}")
    for name, values in (("role", query.roles), ("source", query.sources), ("project", query.projects)):
        if values:
            parts.append(f"{name} {' or '.join(values)}")
    if query.sessions:
        parts.append(f"in session {' or '.join(query.sessions)}")
    parts.extend(f"not {name} {value}" for name, value in query.excluded)
    parts.extend(_dated(span) for span in query.dates)
    if not parts:
        return "Nothing to look for."
    sentence = "Messages " + "; ".join(parts) + "."
    if query.ignored:
        sentence += f" Not searched for: {', '.join(query.ignored[:12])}."
    return sentence


def _dated(span: Span) -> str:
    edge = ""
    if span.since is not None and span.before is not None:
        edge = f"{_moment(span.since)} to {_moment(span.before)}"
    elif span.since is not None:
        edge = f"from {_moment(span.since)} on"
    elif span.before is not None:
        edge = f"before {_moment(span.before)}"
    outside = "not " if span.outside else ""
    return f"“{span.words}” read as {outside}{edge}{'' if span.hard else ' (preferred, not required)'}"


def _moment(seconds: float) -> str:
    local = time.localtime(seconds)
    return time.strftime("%Y-%m-%d" if local[3:5] == (0, 0) else "%Y-%m-%d %H:%M", local)


def _either(group: Sequence[Term]) -> str:
    words = " or ".join(map(str, group[:8]))
    return f"({words})" if len(group) > 1 else words


def _list(terms: Sequence[Term]) -> str:
    more = f" and {len(terms) - 12} more" if len(terms) > 12 else ""
    return ", ".join(map(str, terms[:12])) + more
