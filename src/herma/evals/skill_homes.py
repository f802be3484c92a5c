"""A temporary home with the skills of a data set, asked the way a program would ask."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from herma.app import Herma
from herma.errors import UsageError
from herma.evals.data import CORPUS
from herma.evals.skills import Route, Routed
from herma.skills.compose import compose
from herma.skills.document import slug
from herma.types import FindMode, Skill

Routes = Callable[[FindMode], Route]
"""Routing by words, by vectors, or by both, over the same skills."""


@contextmanager
def routing(data: Path, folder: Path | None, flags: Mapping[str, Any], *, embedded: bool) -> Iterator[Routes]:
    """Routing over the SKILL.md files in `folder`, or over the names and descriptions of the data."""
    settings = {**flags, **({} if embedded else {"embedding.model": "none"})}
    with tempfile.TemporaryDirectory(prefix="herma-eval-") as home:
        if folder is None:
            _write(data / CORPUS, Path(home) / "skills")
        else:
            settings["skills.external_dirs"] = str(folder.resolve())
        with Herma.open(home, flags=settings) as h:
            if not h.skills.list(everything=True):
                raise UsageError(f"There are no skills in {folder or data}.", hint="Give the folder of the skills.")
            vectors = h.index.vectors if embedded else None
            if embedded and (vectors is None or not vectors.wait() or not vectors.state().ready):
                raise UsageError("There is no embedder.", hint="herma models install e5-small")

            def routes(mode: FindMode) -> Route:
                def route(task: str) -> Routed:
                    found = h.skills.find(task, mode=mode)
                    return Routed(
                        tuple(match.name for match in found.matches), tuple(match.name for match in found.nearest)
                    )

                return route

            yield routes


def _write(corpus: Path, target: Path) -> None:
    for line in corpus.read_text("utf-8").splitlines():
        row = json.loads(line) if line.strip() else {}
        name = slug(str(row.get("name") or ""))
        if name:
            place = target / slug(str(row["doc_id"]).replace("/", "--"))
            place.mkdir(parents=True, exist_ok=True)
            text = compose(Skill(name, " ".join(str(row.get("description") or name).split()), "See the description."))
            (place / "SKILL.md").write_text(text, encoding="utf-8")
