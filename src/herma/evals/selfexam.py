"""The exam over the user's own history, on a copy of it: how much can be found again, in which mode, by which model."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from herma.app import Herma
from herma.errors import UsageError
from herma.evals.data import Question
from herma.evals.exam import Said, questions
from herma.evals.measures import Answered
from herma.evals.retrieval import PATIENT, Mode, Report, Result, ask, prepare, silent
from herma.store.backup_copy import copy_database
from herma.store.sqlite.derived_copy import copy_derived
from herma.types import SessionFilter

DATABASE = "herma.db"
DERIVED = ("index.db", "index.db.vectors")
MOST_SESSIONS = 500
MOST_MESSAGES = 20_000
"""As much history as questions are made of; all of it is searched."""
LEAST = 40
"""Characters that a message must have to be asked for."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Settings that the exam is taken with."""

    name: str
    flags: Mapping[str, object]
    of_vectors: bool = False
    """Whether words are found in the same way by all such variants."""


def take(
    home: Path,
    modes: Sequence[Mode],
    variants: Sequence[Variant],
    *,
    count: int,
    seed: int,
    progress: Report = silent,
) -> list[Result]:
    """Take the same exam with each variant, in each mode; a mode without vectors only once."""
    results: list[Result] = []
    asked: list[Question] = []
    for number, variant in enumerate(variants):
        flags = {**variant.flags, "search.model_wait": PATIENT}
        with copied(home) as copy, Herma.open(home=copy, flags=flags) as h:
            asked = asked or questions(_history(h, seed), count, seed)
            if not asked:
                raise UsageError(
                    "There is not enough in this home to ask about.",
                    hint="It takes messages of some length; `herma eval retrieval` measures labelled data.",
                )
            wanted = [mode for mode in modes if mode != "words" or number == 0 or not variant.of_vectors]
            prepare(h, embedding=any(mode != "words" for mode in wanted))
            found: dict[Mode, list[Answered]] = {mode: [] for mode in wanted}
            notes: dict[Mode, dict[str, None]] = {mode: {} for mode in wanted}
            for done, question in enumerate(asked, 1):
                for mode in wanted:
                    answer, said = ask(h, question, mode, "message", str)
                    found[mode].append(answer)
                    notes[mode].update(dict.fromkeys(said))
                progress(number * len(asked) + done, len(variants) * len(asked))
        results += [
            Result("own history", _name(variant, mode), tuple(found[mode]), {}, tuple(notes[mode])) for mode in wanted
        ]
    return results


def _name(variant: Variant, mode: Mode) -> str:
    return mode if not variant.name or (mode == "words" and variant.of_vectors) else f"{variant.name}: {mode}"


@contextmanager
def copied(home: Path) -> Iterator[Path]:
    """A home with the same transcripts and the same derived indexes; nothing that happens there reaches the first."""
    if not (home / DATABASE).is_file():
        raise UsageError(f"There is no {DATABASE} in {home}.", hint="Name another home with --home.")
    with tempfile.TemporaryDirectory(prefix="herma-eval-") as folder:
        copy = Path(folder)
        with copy_database(home / DATABASE, copy / DATABASE) as one:
            one.begin()
            one.copy()
        for name in DERIVED:
            copy_derived(home / name, copy / name)
        yield copy


def _history(h: Herma, seed: int) -> list[Said]:
    """Messages of people and assistants, of as many sessions as are needed."""
    sessions = list(h.transcripts.list(SessionFilter(archived=False), limit=1_000_000))
    draw = random.Random(seed)  # noqa: S311  nothing secret: the same exam every time
    found: list[Said] = []
    for session in draw.sample(sessions, min(len(sessions), MOST_SESSIONS)):
        for message in h.transcripts.messages(session.id):
            text = message.content
            if message.role in ("user", "assistant") and isinstance(text, str) and len(text) >= LEAST:
                found.append(Said(message.id, session.id, text, message.timestamp))
        if len(found) > MOST_MESSAGES:
            break
    return sorted(found, key=lambda one: one.id)
