"""Whether what a model states rests on anything: names, numbers and paths that nobody named are made up. Pure.

Other words for what was said are fine, and so is another language; only what can hardly be said in other words is
looked for. A weak model invents such things, or repeats the question that it was asked. Who says "js" has named
JavaScript, though, and who writes in another language may have named anything in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from herma.reflect.short_forms import ShortForms, plain
from herma.reflect.wording import every_task

_LONGEST = 4_000
_WORD = re.compile(r"[^\W_]++(?:[._/:@'’-][^\W_]++)*+")
_OFTEN = re.compile(r"\d{1,2}|(?:19|20)\d\d|\d{4}-\d\d(?:-\d\d)?|\d{1,2}:\d\d(?::\d\d)?|\d{1,3}(?:st|nd|rd|th|s)?")
"""Small numbers, years, days and times: a model may count, or say in digits what was said in words."""
_SMALL = 12
_NAME = re.compile(r"[A-Z][a-zà-öø-ÿ]{2,}+|[A-Z][a-z]++[A-Z]\w++")
_ENDS = (".", "!", "?", ":", ";", "—", "–", "(", '"', "“", "‘", "-", "*", "•", "/")
_ENGLISH = frozenset(("the", "is", "are", "of", "to", "with", "and", "for", "has", "uses", "user", "user's"))
_NOT_NAMES = frozenset(
    (
        *("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
        *("january", "february", "march", "april", "may", "june", "july", "august", "september", "october"),
        *("november", "december", "english", "markdown", "user", "agent", "assistant", "internet"),
    )
)
_NUMBER = re.compile(r"\d+(?:[.,'’:]\d+)*+")
_RUN = re.compile(r"[A-Z]\w*+(?: (?:of )?[A-Z]\w*+)++")
"""Several words that make one name."""
_STEM = 5
_SHORTEST_ECHO = 12
_MARKS = re.compile(r"[\W_]+")


class Grounds:
    """Everything that was said, by whomever, as one text without blanks: what is looked for is short.

    What the user `said` of it is also heard for short forms, and for numbers in words.
    """

    def __init__(self, texts: Iterable[str], said: Iterable[str] = ()) -> None:
        self._dense = "\n".join(_dense(text) for text in texts)
        self._said = ShortForms(said)

    def has(self, anchor: str) -> bool:
        """Whether it was named; of a long word the beginning will do, as in Postgres and PostgreSQL."""
        wanted = _dense(anchor)
        if wanted in self._dense or (wanted.isalpha() and len(wanted) > _STEM and wanted[:_STEM] in self._dense):
            return True
        if any(mark.isdigit() for mark in wanted):
            return _NUMBER.fullmatch(wanted) is not None and self._said.counts(wanted)
        return self._said.foreign or self._said.names([anchor])

    def missing(self, text: str) -> str:
        """The first thing in a statement that nobody named; "" where there is none."""
        absent = [anchor for anchor in anchors(text) if not self.has(anchor)]
        if absent:
            runs = [run for run in _RUN.findall(text[:_LONGEST]) if self._said.names(run.split())]
            absent = [anchor for anchor in absent if not any(anchor in run.split() for run in runs)]
        return next(iter(absent), "")


def anchors(text: str) -> list[str]:
    """What in a statement can hardly be said in other words: names, and whatever has digits in it."""
    text = text[:_LONGEST]
    english = not _ENGLISH.isdisjoint(text.casefold().split())  # elsewhere all nouns may be written large
    found: dict[str, None] = {}
    before = "."
    for match in _WORD.finditer(text):
        word = match.group()
        begins = before.endswith(_ENDS) or not before
        before = text[match.end() : match.end() + 2].strip() or word
        if any(mark.isdigit() for mark in word):
            if not _is_common(word):
                found[word] = None
        elif english and not begins:
            name = re.sub(r"['’]s$", "", word)
            if _NAME.fullmatch(name) and name.casefold() not in _NOT_NAMES:
                found[name] = None
    return list(found)


def _is_common(word: str) -> bool:
    if not _OFTEN.fullmatch(word):
        return False
    return not word.isdigit() or len(word) == 4 or int(word) <= _SMALL


def is_echo(text: str) -> bool:
    """Whether a text only repeats what the model was asked, as one that fills in a form with the form's own words."""
    plain = _plain(text[:_LONGEST])
    return len(plain) >= _SHORTEST_ECHO and plain in _asked()


@cache
def _asked() -> str:
    return " ".join(_plain(task) for task in every_task())


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _dense(text: str) -> str:
    """Letters and digits alone: UTF-8 is utf8, and 12,500 is 12500."""
    return _MARKS.sub("", plain(text))
