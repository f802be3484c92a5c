"""What no one would search for: terminal colours, data addresses, base64, hex dumps. All of it in one pass each."""

from __future__ import annotations

import re

_TERMINAL = re.compile(
    r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]?"  # colours and cursor
    r"|[\]PX^_][^\x07\x1b]*+(?:\x07|\x1b\\)?"  # window titles, links
    r"|[ -/]*+[0-~])?"
)
_ADDRESS = re.compile(r"data:[\w.+/;=-]{0,120};base64,[A-Za-z0-9+/=_%-]*+", re.IGNORECASE)
_RUN = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{60,}+={0,2}")
_DUMP = re.compile(r"(?<![0-9A-Za-z])(?:[0-9A-Fa-f]{2}(?:[0-9A-Fa-f]{2})?+[ :,]{1,2}+){16,}+")
_BLOCK = 24
"""Of 47 characters in a row, 24 are a whole block; the shortest run has 60, the shortest dump 48."""
_OF_DUMPS = "0123456789ABCDEFabcdef :,"
_SHORTEST_RUN = 60
_SAMPLED = 6
_SAMPLES_OF_DUMPS = re.compile(f"[{_OF_DUMPS}]{{8}}")
"""Every sixth of 48 characters in a row are eight."""
_HEX = re.compile(r"[0-9A-Fa-f]+")
_SEPARATOR = re.compile(r"[+/_-]")
_DIGEST = 64
"""Hex up to this length may be a digest that somebody looks for."""
_TURN = re.compile(r"[a-z](?=[A-Z0-9])|[A-Z](?=[0-9])|[0-9](?=[A-Za-z])")
"""Where one kind of character follows another, other than the capital at the beginning of a word."""
_MANY_TURNS = 0.3
"""Of 100 characters of base64 about 42 are such places; of names and paths, even in capitals and numbers, far fewer."""
_ENDLESS = 1000
_PIECE = 20
"""No word that long has a meaning, unless it is a path: then its pieces are shorter than this on average."""


def without_noise(text: str) -> str:
    """The text with a space for each piece of noise. Takes time in proportion to its length."""
    if "\x1b" in text:
        text = _TERMINAL.sub(" ", text)
    if ";base64," in text or ";BASE64," in text:
        text = _ADDRESS.sub(" ", text)
    if not _may_have_runs(text):
        return text
    text = _RUN.sub(_unless_a_name, text)
    return _DUMP.sub(" ", text)


def _may_have_runs(text: str) -> bool:
    """Whether it is worth looking closer. Prose has a space in every stretch as long as a run, and of samples of it
    there are never so many in a row that may be of a dump.
    """
    at, last, space_before = 0, len(text) - _SHORTEST_RUN, text.rfind
    while at <= last:
        at = space_before(" ", at, at + _SHORTEST_RUN) + 1
        if not at:
            return _has_blocks(text)
    return _SAMPLES_OF_DUMPS.search(text[::_SAMPLED]) is not None and _has_blocks(text)


def _has_blocks(text: str) -> bool:
    """Whether a block has no space or no letter, as one of each run and each dump has."""
    for at in range(0, len(text) - _BLOCK + 1, _BLOCK):
        block = text[at : at + _BLOCK]
        if (" " not in block and block.isascii()) or not block.strip(_OF_DUMPS):
            return True
    return False


def _unless_a_name(match: re.Match[str]) -> str:
    """A long run stays when it may be something with a meaning: a path, a long name, a digest, a line of dashes."""
    run = match[0]
    if _HEX.fullmatch(run):
        return run if len(run) <= _DIGEST else " "
    if len(_TURN.findall(run)) > _MANY_TURNS * len(run):
        return " "
    return " " if len(run) >= _ENDLESS and len(run) >= _PIECE * (1 + len(_SEPARATOR.findall(run))) else run
