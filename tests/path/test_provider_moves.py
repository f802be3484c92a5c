"""External memories over several sessions: /new, /resume, /branch, subagents, recall sources, plugins of Hermes."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from tests.homes import of_files
from tests.path.test_providers import gate, install, names, plugin, shelf, turn

from herma import Herma, HermaWarning
from herma.errors import ConfigError
from herma.providers.manager import attributed, fused, last_recall

pytestmark = of_files
RECALLS = """
from herma import MemoryProvider
class Recalls(MemoryProvider):
    name = "{name}"
    def is_available(self): return True
    def initialize(self, session_id, **kwargs): pass
    def get_tool_schemas(self): return [{{"name": "{name}_tool"}}]
    def system_prompt_block(self): return "Block of {name}."
    def prefetch(self, query, *, session_id=""): return {text!r}
    def sync_turn(self, user, assistant, **kwargs): raise RuntimeError("written to {name}")
"""


def source(home: Path, name: str, text: str, code: str = RECALLS) -> None:
    folder = home / "plugins" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text(code.format(name=name, text=text))


MOVES = plugin(
    "def sync_turn(self, u, a, *, session_id=''): note('sync_turn', session_id)\n"
    "def on_session_end(self, messages): note('on_session_end', len(messages))\n"
    "def on_session_switch(self, new_session_id, *, parent_session_id='', reset=False, rewound=False, **kw):\n"
    "    note('on_session_switch', new_session_id, parent_session_id, reset, kw['reason'])"
)


def test_a_new_conversation_flushes_and_does_not_shut_down(home: Path) -> None:
    install(home, text=MOVES)
    with Herma.open(home) as h:
        first = h.session()
        turn(first)
        second = first.reset()
        turn(second)
        seen = shelf(h)
        assert [entry[0] for entry in seen] == [
            *("initialize", "sync_turn", "on_session_end", "on_session_switch", "sync_turn")
        ]
        assert seen[3][1:] == (second.id, first.id, True, "new")
        assert seen[4][1] == second.id
        second.close()
        assert names(h)[-2:] == ["on_session_end", "shutdown"]


def test_resume_and_branch_are_switches(home: Path) -> None:
    install(home, text=MOVES)
    with Herma.open(home) as h:
        old = h.session()
        turn(old)
        old.close("reset")
        other = h.session()
        turn(other)
        other.close("switched")
        back = h.session(resume=old.id)
        switch = shelf(h)[-1]
        assert (switch[0], switch[1:]) == ("on_session_switch", (back.id, other.id, False, "resume"))
        turn(back, "two")
        back.close("branched")
        branch = h.branch(back.id, source="library")
        assert shelf(h)[-1] == ("on_session_switch", branch.id, back.id, False, "branch")
        assert names(h).count("initialize") == 1
        branch.close()
    assert names_after(home).count("shutdown") == 1


def names_after(home: Path) -> list[str]:
    (module,) = [
        one
        for name, one in sys.modules.items()
        if name.endswith("notes.shelf") and str(home) in str(getattr(one, "__file__", ""))
    ]
    return [entry[0] for entry in module.SHELF]


def test_a_provider_is_not_handed_to_somebody_else(home: Path) -> None:
    install(home, text=MOVES)
    with Herma.open(home) as h:
        first = h.session(user="ann")
        turn(first)
        first.close("reset")
        turn(h.session(user="bob"))
        assert names(h).count("initialize") == 2
    assert names_after(home).count("shutdown") == 2, "closing the home shuts both down"


def test_one_that_has_not_begun_is_handed_over_too(home: Path) -> None:
    begins = "def initialize(self, session_id, **kwargs):\n    note('initialize', session_id)\n    GATE.wait(30)"
    install(
        home,
        text=MOVES.replace('def initialize(self, session_id, **kwargs): note("initialize")', "pass").replace(
            "    def sync_turn", "    " + begins.replace("\n", "\n    ") + "\n    def sync_turn"
        ),
        timeout=0.2,
    )
    with Herma.open(home) as h:
        first = h.session()
        turn(first)
        second = first.reset()
        turn(second, "two")
        gate(h).set()
        seen = shelf(h)
        assert [entry[0] for entry in seen] == [
            *("initialize", "sync_turn", "on_session_end", "on_session_switch", "sync_turn")
        ]
        assert (seen[0][1], seen[3][1]) == (first.id, second.id)


TOGETHER = RECALLS.replace("from herma", "import threading\nfrom herma", 1).replace(
    "kwargs): pass", "kwargs): threading.TOGETHER.wait(30)"
)


def test_several_begin_side_by_side(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits until the others have begun: they would be too late, one after another."""
    monkeypatch.setattr(threading, "TOGETHER", threading.Barrier(3), raising=False)
    for name in ("birds", "rivers", "mills"):
        source(home, name, f"The {name} are old.", TOGETHER)
    (home / "config.yaml").write_text("providers:\n  recall_from: birds, rivers, mills\n")
    with Herma.open(home) as h, h.session() as session:
        assert session.warnings == ()
        assert "[from birds] The birds are old." in turn(session)


def test_one_that_hangs_while_it_is_imported_stops_no_other(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "GATE", threading.Event(), raising=False)
    source(home, "birds", "")
    (home / "plugins" / "birds" / "__init__.py").write_text(
        "import threading  # MemoryProvider\nthreading.GATE.wait(30)"
    )
    source(home, "rivers", "The weir leaks.")
    (home / "config.yaml").write_text("providers:\n  recall_from: birds, rivers\n  timeout: 1\n")
    with Herma.open(home) as h, h.session() as session:
        assert any("birds takes no part" in warning for warning in session.warnings)
        assert "[from rivers] The weir leaks." in turn(session)
        threading.GATE.set()  # type: ignore[attr-defined]


@pytest.mark.parametrize("context", ["subagent", "cron"])
def test_subagents_and_timers_only_read(home: Path, context: str) -> None:
    install(
        home,
        text=MOVES.replace(
            "return []", 'return [{"name": "notes_find"}, {"name": "notes_write"}]\n    read_tools = ("notes_find",)'
        ),
    )
    with Herma.open(home) as h:
        with h.session(context=context) as session:  # type: ignore[arg-type]
            assert session.tools[-1]["function"]["name"] == "notes_find"
            turn(session)
        assert names(h) == ["initialize", "shutdown"]


def test_tool_sets_of_a_source(home: Path) -> None:
    """A source without the set `memory` has neither the memory tool nor a provider that recalls and is written."""
    install(home, text=MOVES.replace("return []", 'return [{"name": "notes_find"}]'))
    skills = ["skills_list", "skill_view", "skill_manage"]
    everything = ["memory", "session_search", *skills, "notes_find"]
    off = {"tools.off": "telegram = memory+skills, cron=provider, web=search"}
    cases = [
        ({"source": "telegram"}, ["session_search"]),
        ({"context": "cron"}, ["memory", "session_search", *skills]),
        ({"source": "web"}, [name for name in everything if name != "session_search"]),
        ({}, everything),
    ]
    with Herma.open(home, flags=off) as h:
        for options, wanted in cases:
            with h.session(**options) as session:  # type: ignore[arg-type]
                assert [tool["function"]["name"] for tool in session.tools] == wanted
                turn(session)
                assert ("memory" in wanted) == ("There is no tool 'memory'" not in session.call_tool("memory", {}))
        assert names(h) == ["initialize", "sync_turn", "on_session_end", "shutdown"] * 2, "web and the last one"
    with pytest.raises(ConfigError, match="sources, each with memory, provider, search or skills"):
        Herma.open(home, flags={"tools.off": "telegram=mail"})


def test_a_late_recall_is_dropped_and_counted(home: Path) -> None:
    install(
        home,
        text=plugin("def prefetch(self, query, *, session_id=''):\n    GATE.wait(30)\n    return 'Too late.'"),
        timeout=0.3,
    )
    with Herma.open(home) as h:
        with h.session() as session:
            with pytest.warns(HermaWarning):
                assert turn(session) == "one"
            waiting = [each for each in threading.enumerate() if each.name == "herma: notes"]
            gate(h).set()
            for each in waiting:
                each.join(30)
            assert h.providers.status(ask=False).dropped == 1
        last = last_recall(home, "notes")
        assert last is not None
        assert (last.outcome, last.characters, last.turn) == ("late", 0, 1)


def test_an_event_that_never_returns_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herma.providers.manager.BACKGROUND_TIMEOUT", 0.1)
    monkeypatch.setattr("herma.providers.manager.DRAIN", 0.2)
    install(home, text=plugin("def sync_turn(self, u, a, **kwargs): GATE.wait(30)"))
    with Herma.open(home) as h:
        session = h.session()
        turn(session)
        assert h.providers.flush(30)
        with pytest.warns(HermaWarning) as caught:
            assert turn(session, "two") == "two"
        assert any("sync_turn (did not answer within" in str(each.message) for each in caught)
        assert h.providers.flush(30)
        health = h.providers.status(ask=False).health
        assert health.timeouts == 1
        assert health.last is not None
        assert "has not returned yet" in health.last.why
        with pytest.warns(HermaWarning, match="on_session_end"):
            session.close()
        gate(h).set()


def test_an_end_does_not_wait_for_one_that_hangs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herma.providers.manager.DRAIN", 0.1)
    install(home, text=plugin("def sync_turn(self, u, a, **kwargs): GATE.wait(30)"))
    with Herma.open(home) as h:
        session = h.session()
        turn(session)
        with pytest.warns(HermaWarning, match="could not be handed over in time"):
            session.close()
        gate(h).set()


def test_recall_sources_are_fused_and_attributed(home: Path) -> None:
    install(home, text=RECALLS.format(name="notes", text="The mill is old.").replace("raise RuntimeError", "str"))
    source(home, "birds", "## Birds\n- Herons nest by the weir.\n- Owls sleep in the barn.")
    source(home, "rivers", "- The weir leaks.\n- Herons nest by the weir.\n- The mill is old.")
    source(home, "broken", "")
    (home / "plugins" / "broken" / "__init__.py").write_text("import nothing_of_that_name  # MemoryProvider")
    (home / "config.yaml").write_text(
        "memory:\n  provider: notes\nproviders:\n  recall_from: birds, rivers, broken, notes\n"
    )
    with Herma.open(home) as h:
        session = h.session()
        assert any("broken" in warning for warning in session.warnings)
        assert [tool["function"]["name"] for tool in session.tools if "_tool" in tool["function"]["name"]] == [
            "notes_tool"
        ]
        assert "Block of birds" not in session.system_prompt
        sent = turn(session)
        assert "[from notes] The mill is old." in sent
        assert sent.count("The mill is old.") == 1, "what the provider said is not said again by a source"
        assert "- [from birds, rivers] Herons nest by the weir.\n" in sent
        assert sent.index("Herons nest") < sent.index("The weir leaks"), "what two sources say comes first"
        assert "- [from birds] Owls sleep in the barn." in sent
        assert h.providers.flush(30)
        assert h.providers.status(ask=False, name="birds").health.failures == 0, "it was not written to"
        assert "nest" not in turn(session, "two"), "what was recalled is not recalled again"
        session.close()
        assert h.providers.status(ask=False, name="rivers").sessions == 0


def test_fusing_and_attributing() -> None:
    assert fused([]) == ""
    assert fused([("a", "One.\n\nTwo."), ("b", "* Two.\n  more")]) == (
        "- [from a] One.\n* [from b] Two.\n  more\n- [from a] Two."
    )
    assert attributed("# Head\nText.\nmore\n\n1. One", "x") == "# Head\n[from x] Text.\nmore\n\n1. [from x] One"


HERMES = '''
"""A plugin in the style of Hermes: register(ctx), absolute and relative imports, nested packages."""
from agent.memory_provider import MemoryProvider
from tools.registry import tool_error
from hermes_constants import get_hermes_home
import hermes_constants
import hermes_cli.config
from plugins.memory.thing.deep.inner import WORD
from . import sibling
from .deep import inner

class Thing(MemoryProvider):
    name = "thing"
    def is_available(self): return bool(WORD)
    def initialize(self, session_id, **kwargs):
        from utils import atomic_json_write          # imports inside methods run much later
        from .deep.inner import WORD
        atomic_json_write(get_hermes_home() / "thing.json", {"word": WORD, "sibling": sibling.VALUE})
    def get_tool_schemas(self): return [{"name": "thing_do"}]
    def handle_tool_call(self, tool_name, args, **kwargs): return tool_error("no", tool=tool_name)
    def system_prompt_block(self):
        try:
            from agent import auxiliary_client
        except ImportError as exc:
            return f"Missing: {exc}"

def register(ctx):
    ctx.register_memory_provider(Thing())
    ctx.register_memory_provider(Thing())
'''


def hermes_plugin(folder: Path) -> None:
    (folder / "deep").mkdir(parents=True)
    (folder / "__init__.py").write_text(HERMES)
    (folder / "sibling.py").write_text("from .deep.inner import WORD\nVALUE = WORD + '!'\n")
    (folder / "deep" / "__init__.py").write_text("")
    (folder / "deep" / "inner.py").write_text(
        "from hermes_cli.config import cfg_get\nWORD = cfg_get({'a': 'weir'}, 'a')"
    )


def test_a_plugin_of_hermes_runs_unchanged(home: Path) -> None:
    hermes_plugin(home / "plugins" / "thing")
    (home / "config.yaml").write_text("memory:\n  provider: thing\n")
    with Herma.open(home) as h:
        with pytest.warns(HermaWarning, match=r"thing is ignored: thing is registered already"):
            session = h.session()
        assert (home / "thing.json").read_text() == '{\n  "word": "weir",\n  "sibling": "weir!"\n}'
        assert session.call_tool("thing_do", {}) == '{"error": "no", "tool": "thing_do"}'
        assert "Missing:" in session.system_prompt
        for module in ("agent.memory_provider", "hermes_constants", "tools.registry", "utils", "plugins.memory.thing"):
            assert module not in sys.modules, "only the plugin sees these names"
            with pytest.raises(ImportError):
                __import__(module)
        session.close()


def test_a_package_with_the_entry_point_of_hermes(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    site = tmp_path / "site"
    hermes_plugin(site / "thing_pkg")
    text = HERMES.replace("plugins.memory.thing", "thing_pkg")
    (site / "thing_pkg" / "__init__.py").write_text(text)
    (site / "other_pkg.py").write_text("def register(ctx): ctx.register_tool('x')\n")
    (site / "things-1.0.dist-info").mkdir()
    (site / "things-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: things\nVersion: 1.0\n")
    (site / "things-1.0.dist-info" / "entry_points.txt").write_text(
        "[hermes_agent.plugins]\nthing = thing_pkg\nother = other_pkg\n"
    )
    monkeypatch.syspath_prepend(str(site))
    (home / "config.yaml").write_text("memory:\n  provider: thing\n")
    with Herma.open(home) as h:
        with pytest.warns(HermaWarning, match="registered already"):
            session = h.session()
        assert [tool["function"]["name"] for tool in session.tools][-1] == "thing_do"
        listed = [one.name for one in h.providers.list()]
        assert "thing" in listed
        assert "other" not in listed, "not every plugin of Hermes is a memory"
