"""Check the rules of the source tree (docs/decisions/0012-the-house.md), and that each rule can fail.

`ratchet.json` records the figures that have not reached their goal yet. They may fall, not rise: whoever lowers one
writes the new figure down, and a commit that raises one says why.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.arch import house
from tests.arch.house import Module

MAX_FILE_LINES = 1200
MAX_FUNCTION_LINES = 60
MAX_MODULES_IN_A_FOLDER = 11

# The only places that may catch every exception and not raise it again, each with its reason.
MAY_CATCH_ALL = {
    "herma.search.rank": "a program's own reranker: its failure leaves the order unchanged and is reported",
    "herma.mcp.hook": "the entry point of hooks: nothing may reach the client; it is written down for the doctor",
    "herma.mcp.events": "the helper of hooks: one bad request must not end it; it is written down for the doctor",
    "herma.cli.main": "the entry point: no traceback reaches the user",
    "herma.web.access": "the entry point of the web server: no traceback reaches a browser; it is logged",
    "herma.web.app": "work in a thread: each error is raised in the request that waits for it",
    "herma.testing.contracts": "tries a provider: any refusal of bad input is an answer",
    "herma.index.vectors": "an embedder is a plugin: its failure is counted and shown, and word search goes on",
    "herma.agent.mcp": "an MCP server is a plugin: its failure is shown and costs only its own tools",
    "herma.models.embedder": "tokenizers raises Exception for a file that it cannot read: raised as EmbedderError",
    "herma.models.client": "the thread that reads an answer: each error is raised in the waiting caller",
    "herma.importers.pipeline": "a reader meets files of any shape, and may be a plugin: its failure is reported",
    "herma.providers.cli": "tries providers: each failure is printed beside the call, or counted",
    "herma.worker": "background work: a failed job is counted and shown, and stops no other",
    "herma.store.database": "writes that share a commit: each error is raised in the caller whose work it undid",
}

# The only modules that may start threads, each with its reason. All others use `app.worker` or `worker.BackgroundCall`.
MAY_START_THREADS = {
    "herma.worker": "the background work of an opened Herma",
    "herma.aio": "calls of an asynchronous program, as many at once as it asked for",
    "herma.agent.chat": "a timer on the screen: says that leaving takes long",
    "herma.models.embedder": "one batch of texts, spread over the processor cores",
    "herma.testing.contracts": "proves that a plugin bears several threads",
    "herma.testing.doubles": "a server",
}

# The only modules outside the store and the index that know SQLite, each with its reason.
MAY_KNOW_SQLITE = {
    "herma.providers.bundled.holographic": "the provider's own database",
    "herma.providers.bundled.retaindb": "the provider's own queue",
    "herma.importers.base": "databases of other programs",
    "herma.importers.agents.cursor": "a database of another program",
    "herma.importers.exports.hermes": "a database of another program",
    "herma.cli.maintenance": "copies a home between SQLite and a server",
    "herma.doctor.repair": "repairs a damaged database file",
    "herma.privacy.export": "reads the tables from the schema",
    "herma.privacy.forget": "empties the write-ahead log, where deleted text would stay",
}

# Modules with one importer, in their own folder, that stay files of their own, each with its reason.
MAY_HAVE_ONE_IMPORTER = {
    "herma.mcp.hook": "starts in milliseconds, apart from all that is loaded to answer",
    "herma.importers.rows": "what is imported, apart from how it is read",
    "herma.index.nearest": "comparing vectors, apart from how they are made and kept",
}


def measured() -> dict[str, int]:
    found = house.modules()
    return {
        "files": sum(not module.package for module in found),
        "lines": sum(module.text.count("\n") for module in found),
        "long files": len(house.long_files(found, MAX_FILE_LINES)),
        "crowded folders": len(house.crowded_folders(found, MAX_MODULES_IN_A_FOLDER)),
        "satellites": len(set(house.satellites(found)) - MAY_HAVE_ONE_IMPORTER.keys()),
        "protocols": len(house.protocols(found)),
        "late imports": len(house.late_imports(found)),
        "repeated class names": len(house.repeated_classes(found)),
        "single-use dataclasses": len(house.single_use_dataclasses(found)),
        "upward imports": len(house.upward_imports(found)),
        "modules in cycles": sum(map(len, house.cycles(found))),
    }


def test_no_figure_rises_above_the_ratchet() -> None:
    recorded = json.loads(Path(__file__).with_name("ratchet.json").read_text("utf-8"))
    figures = measured()
    assert figures.keys() == recorded.keys()
    assert {name: figure for name, figure in figures.items() if figure > recorded[name]} == {}


def test_functions_are_short() -> None:
    assert house.long_functions(house.modules(), MAX_FUNCTION_LINES) == []


def test_names_are_not_vague() -> None:
    assert house.vague_names(house.modules()) == []


def test_nothing_is_swallowed_without_a_reason() -> None:
    assert house.swallowed(house.modules(), MAY_CATCH_ALL) == []
    needed = _modules_of(house.swallowed(house.modules(), {}))
    assert needed == set(MAY_CATCH_ALL), "a reason is listed that is no longer needed"


def test_threads_are_started_in_one_place() -> None:
    assert house.threads_started(house.modules(), MAY_START_THREADS) == []
    needed = _modules_of(house.threads_started(house.modules(), {}))
    assert needed == set(MAY_START_THREADS), "a reason is listed that is no longer needed"


def test_one_module_makes_files_durable() -> None:
    assert house.flushes(house.modules()) == ["herma.store.files"]


def test_few_modules_know_sqlite() -> None:
    assert set(house.knows_sqlite(house.modules())) == set(MAY_KNOW_SQLITE)


def _modules_of(places: Iterable[str]) -> set[str]:
    return {place.partition(":")[0] for place in places}


# ── each rule finds what breaks it ──────────────────────────────────────────────────────────────────────────────


def sample(**texts: str) -> list[Module]:
    return [Module("herma." + name.replace("__", "."), text + "\n") for name, text in texts.items()]


@pytest.mark.parametrize(
    ("importer", "text", "wrong"),
    [
        ("memory__store", "from herma.app import Herma", True),
        ("memory__store", "def f():\n    from herma.web import pages", True),
        ("memory__store", "from herma.search import cli", True),
        ("memory__store", "from herma.search.query import x", False),
        ("memory__store", "from herma.store.files import x", False),
        ("memory__cli", "from herma.app import Herma\nfrom herma.cli import main", False),
        ("store__backup", "from herma.memory.store import x", True),
        ("store__backup", "from herma.features import x", False),
        ("store__backup", "from herma.session import x", True),
        ("memory__store", "from herma.session import x", True),
        ("memory__store", "if TYPE_CHECKING:\n    from herma.session import x", False),
        ("features", "from herma.tools.registry import x", False),
        ("features", "from herma.tools.memory import x", True),
        ("errors", "from herma.session import x", True),
        ("errors", "from herma.types import x", False),
        ("app", "from herma.cli.main import x", True),
        ("unplaced__thing", "", True),
    ],
)
def test_imports_that_point_up_are_found(importer: str, text: str, wrong: bool) -> None:
    others = (
        *(
            "app",
            "session",
            "features",
            "store__files",
            "store__backup",
            "memory__entries",
            "search__query",
            "search__cli",
        ),
        *("web__pages", "tools__registry", "tools__memory"),
    )
    found = sample(**(dict.fromkeys(others, "") | {importer: text}))
    assert bool(house.upward_imports(found)) is wrong


def test_circles_are_found_even_inside_functions() -> None:
    circle = {"a": "from herma import b", "b": "def f():\n    import herma.c", "c": "from herma.a import x"}
    assert house.cycles(sample(**circle, d="import herma.a", e="")) == [["herma.a", "herma.b", "herma.c"]]
    assert house.cycles(sample(a="from herma import b", b="from herma.c import x", c="")) == []
    assert house.cycles(sample(a="if TYPE_CHECKING:\n    from herma import b", b="import herma.a")) == []


def test_satellites_are_found() -> None:
    lonely = sample(
        memory__a="from herma.memory import b", memory__b="", memory__c="", app="from herma.memory import c"
    )
    assert house.satellites(lonely) == ["herma.memory.b"]


def test_classes_are_counted() -> None:
    found = sample(
        a="class P(Protocol): ...\nclass Q(Protocol[T]): ...\nclass X: ...",
        b="class X: ...\nclass _Y: ...\n@dataclass\nclass D: ...\nD()",
        c="class _Y: ...\n@dataclass(frozen=True)\nclass E: ...\nE()\nE()",
    )
    assert house.protocols(found) == ["herma.a.P", "herma.a.Q"]
    assert house.repeated_classes(found) == ["X"]
    assert house.single_use_dataclasses(found) == ["D"]


def test_sizes_are_measured() -> None:
    body = "    x = 1\n"
    assert house.long_functions(sample(a="def f():\n" + body * 59), 60) == []
    assert house.long_functions(sample(a="class C:\n  async def f():\n" + body * 60), 60) == ["herma.a.f: 61 lines"]
    assert house.long_files(sample(a="x = 1\n" * 9, b="x = 1\n" * 10), 10) == ["herma.b"]
    assert house.crowded_folders(sample(a__x="", a__y="", b__x=""), 1) == ["herma.a"]
    assert house.vague_names(sample(store__utils="", helpers__x="", prompt__fence="")) == [
        "herma.store.utils",
        "herma.helpers.x",
    ]
    assert house.late_imports(sample(a="import herma.b\ndef f():\n    from herma import c\n    import json")) == [
        "herma.a:3"
    ]


def test_threads_are_found() -> None:
    found = sample(a="threading.Thread(target=x).start()\nTimer(1, x)\nThreadPoolExecutor()", b="def thread(): ...")
    assert sorted(house.threads_started(found, {})) == ["herma.a:1", "herma.a:2", "herma.a:3"]
    assert house.threads_started(found, {"herma.a": "why"}) == []


def test_private_writers_and_engines_are_found() -> None:
    found = sample(a="os.fsync(file)", b="fsync(file)", c="def f():\n    import apsw", store__x="import apsw")
    assert house.flushes(found) == ["herma.a", "herma.b"]
    assert house.knows_sqlite(found) == ["herma.c"]


def test_broad_handlers_are_found() -> None:
    template = "try:\n    x\nexcept{}:\n    {}\n"
    for caught in ("", " Exception", " BaseException as e", " (ValueError, Exception)"):
        for body in ("pass", "return", "raise ValueError from None"):
            assert house.swallowed(sample(a=template.format(caught, body)), {}) == ["herma.a:3"]
        assert house.swallowed(sample(a=template.format(caught, "clean()\n    raise")), {}) == []
    assert house.swallowed(sample(a=template.format(" ValueError", "pass")), {}) == []
    assert house.swallowed(sample(a="with contextlib.suppress(Exception):\n    x"), {}) == ["herma.a:1"]
    assert house.swallowed(sample(a="with suppress(OSError):\n    x"), {}) == []
