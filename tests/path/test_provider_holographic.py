"""The holographic provider: facts, trust, entities, vectors and banks in a local file."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from tests.homes import herma, of_files

from herma import Herma
from herma.providers.bundled import holographic
from herma.providers.bundled.holographic import (
    FactStore,
    Holographic,
    atom,
    bind,
    bundle,
    encode_fact,
    entities_in,
    similarity,
    unbind,
)

pytestmark = of_files
FACTS = [
    "Ann Baker prefers tea over coffee.",
    "Ann Baker lives in Berlin.",
    "The 'Heron Project' uses Postgres 16.",
    "Bob Stone works with Ann Baker on the 'Heron Project'.",
    "Postgres, aka pg, is a database.",
    "小明喜欢在图书馆看书",
    "The cellar is damp in winter.",
]


def begun(home: Path, **settings: Any) -> Holographic:
    provider = Holographic(home)
    provider.save_config(settings, str(home))
    provider.initialize("s-1", hermes_home=str(home))
    return provider


@pytest.fixture(params=["numpy", "words only"])
def facts(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holographic]:
    if request.param == "words only":
        monkeypatch.setattr(holographic, "find_spec", lambda _: None)
    provider = begun(home)
    for fact in FACTS:
        assert call(provider, "add", content=fact)["status"] == "added"
    yield provider
    provider.shutdown()


def call(provider: Holographic, action: str, **arguments: Any) -> Any:
    return json.loads(provider.handle_tool_call("fact_store", {"action": action, **arguments}))


def contents(answer: Any) -> list[str]:
    return [one["content"] for one in answer.get("results", answer.get("facts"))]


@pytest.mark.parametrize(
    ("action", "arguments", "first", "count"),
    [
        ("search", {"query": "which tea does she like"}, FACTS[0], 1),
        ("search", {"query": "图书馆在哪里"}, FACTS[5], 1),
        ("search", {"query": "zebra"}, None, 0),
        ("search", {"query": "Ann", "category": "tool"}, None, 0),
        ("probe", {"entity": "ann baker"}, FACTS[0], 3),
        ("probe", {"entity": "Nobody"}, None, 0),
        ("related", {"entity": "pg"}, FACTS[4], 1),
        ("related", {"entity": "damp cellar"}, FACTS[6], 1),
        ("reason", {"entities": ["Ann Baker", "Heron Project"]}, FACTS[3], 1),
        ("reason", {"entities": ["Ann Baker", "cellar"]}, None, 0),
        ("list", {"limit": 2}, FACTS[6], 2),
    ],
)
def test_questions(facts: Holographic, action: str, arguments: dict[str, Any], first: str | None, count: int) -> None:
    answer = call(facts, action, **arguments)
    assert len(contents(answer)) == answer["count"] == count, answer
    assert contents(answer)[:1] == ([first] if first else [])


@pytest.mark.parametrize(
    ("action", "arguments", "says"),
    [
        ("add", {}, "content is required for add"),
        ("search", {}, "query is required for search"),
        ("probe", {}, "entity is required for probe"),
        ("reason", {"entities": []}, "entities is required for reason"),
        ("remove", {}, "fact_id is required for remove"),
        ("update", {"fact_id": 1, "content": FACTS[1]}, "Fact 2 has the same content. Nothing was changed."),
        ("add", {"content": "x" * 10_001}, "A fact may have 10,000 characters."),
        ("add", {"content": "x", "category": "food"}, "unknown value 'food'"),
        ("dance", {}, "unknown value 'dance'"),
        ("search", {"query": 7}, "query must be of type string"),
    ],
)
def test_wrong_arguments_are_named(facts: Holographic, action: str, arguments: dict[str, Any], says: str) -> None:
    assert says in call(facts, action, **arguments)["error"]
    assert facts.store.count() == len(FACTS)


def test_changes(facts: Holographic) -> None:
    assert call(facts, "add", content=FACTS[0]) == {"fact_id": 1, "status": "exists"}
    assert call(facts, "update", fact_id=1, content="Ann Baker prefers cocoa.", trust_delta=0.3) == {"updated": True}
    assert contents(call(facts, "search", query="cocoa")) == ["Ann Baker prefers cocoa."]
    assert contents(call(facts, "search", query="tea")) == []
    assert call(facts, "update", fact_id=99, tags="x") == {"updated": False}
    assert call(facts, "remove", fact_id=2) == {"removed": True}
    assert call(facts, "remove", fact_id=2) == {"removed": False}
    assert len(contents(call(facts, "probe", entity="Ann Baker"))) == 2


def test_trust_follows_feedback_and_hides_facts(facts: Holographic) -> None:
    def rate(action: str) -> Any:
        return json.loads(facts.handle_tool_call("fact_feedback", {"action": action, "fact_id": 1}))

    assert rate("helpful") == {"fact_id": 1, "old_trust": 0.5, "new_trust": 0.55, "helpful_count": 1}
    for _ in range(9):
        told = rate("unhelpful")
    assert (told["new_trust"], told["helpful_count"]) == (0.0, 1)
    assert contents(call(facts, "search", query="tea")) == [], "below min_trust_threshold"
    assert contents(call(facts, "search", query="tea", min_trust=0.0)) == [FACTS[0]]
    assert "no fact 99" in facts.handle_tool_call("fact_feedback", {"action": "helpful", "fact_id": 99})
    assert "[fact 1]" not in facts.prefetch("Does Ann like tea?")


def test_facts_that_share_entities_and_differ_may_contradict(facts: Holographic) -> None:
    call(facts, "add", content="Ann Baker moved to the sea in spring.")
    pairs = call(facts, "contradict", limit=50)["results"]
    assert all(pair["shared_entities"] and pair["contradiction_score"] >= 0.3 for pair in pairs)
    found = [{pair["fact_a"]["content"], pair["fact_b"]["content"]} for pair in pairs]
    assert {"Ann Baker moved to the sea in spring.", FACTS[1]} in found
    assert not any(FACTS[6] in pair for pair in found), "it shares no entity"


def test_curated_memory_is_followed(facts: Holographic) -> None:
    facts.on_memory_write("add", "user", "Likes herons.")
    facts.on_memory_write("replace", "user", "Likes grey herons.", {"old_text": "herons"})
    (fact,) = facts.store.facts("WHERE content LIKE '%herons%'")
    assert (fact["content"], fact["category"]) == ("Likes grey herons.", "user_pref")
    facts.on_memory_write("remove", "user", "", {"old_text": "grey"})
    facts.on_memory_write("remove", "memory", "", {"old_text": "Ann"})
    assert facts.store.count() == len(FACTS), "facts that it did not mirror are left alone"


def test_sentences_of_the_user_are_extracted_if_that_is_wanted(home: Path) -> None:
    said = [
        {"role": "user", "content": "I prefer dark roast. What is new? My car is red!\nBuild it."},
        {"role": "assistant", "content": "I like tea."},
    ]
    provider = begun(home)
    provider.on_session_end(said)
    assert provider.store.count() == 0
    provider.shutdown()
    provider = begun(home, auto_extract=True)
    provider.on_session_end(said)
    assert [one["content"] for one in provider.store.listed("", 0, 9)] == ["My car is red!", "I prefer dark roast."]
    provider.shutdown()


def test_old_facts_weigh_less(home: Path) -> None:
    settings = "plugins:\n  hermes-memory-store:\n    temporal_decay_half_life: 30\n    hrr_dim: 64\n"
    (home / "config.yaml").write_text(settings)  # as Hermes Agent has them; the own file wins
    provider = begun(home, hrr_dim=256)
    assert (provider.values["temporal_decay_half_life"], provider.store.dim) == (30, 256)
    call(provider, "add", content="The heron nests by the old weir.")
    call(provider, "add", content="The heron nests by the new weir.")
    provider.store._db.execute("UPDATE facts SET updated_at=datetime('now', '-90 days') WHERE fact_id=1")
    new, old = provider.search("heron weir", "", 0.0, 5)
    assert new["fact_id"] == 2
    assert old["score"] == pytest.approx(new["score"] / 8, rel=0.2)
    provider.shutdown()


# ── vectors ──


def test_the_algebra() -> None:
    one, other, third = (atom(word, 1024) for word in ("heron", "weir", "mill"))
    assert similarity(one, one) == pytest.approx(1.0)
    assert abs(similarity(one, other)) < 0.1
    assert similarity(unbind(bind(one, other), other), one) == pytest.approx(1.0)
    assert abs(similarity(bind(one, other), one)) < 0.1
    both = bundle([one, other])
    assert similarity(both, one) > 0.5
    assert abs(similarity(both, third)) < 0.1
    assert atom("heron", 1024)[:2].tolist() == atom("heron", 64)[:2].tolist()
    assert np.round(atom("heron", 64)[0], 6) == np.round(
        int.from_bytes(_digest("heron:0")[:2], "little") * 2 * np.pi / 65_536, 6
    )


def _digest(text: str) -> bytes:
    import hashlib

    return hashlib.sha256(text.encode()).digest()


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("Ann Baker met Bob Stone.", {"Ann Baker": "", "Bob Stone": ""}),
        ("The Bank of England and 'Heron Project'", {"The Bank of England": "", "Heron Project": ""}),
        ('They call it "the old mill"', {"the old mill": ""}),
        ("Postgres aka pg", {"Postgres": "pg"}),
        ("it's Ann's dog", {}),
        ("", {}),
    ],
)
def test_names_in_a_text(content: str, names: dict[str, str]) -> None:
    assert entities_in(content) == names


def total(store: FactStore, category: str) -> Any:
    rows = store._db.execute("SELECT hrr_vector FROM facts WHERE category=?", (category,))
    vectors = [np.frombuffer(row[0], np.float32).astype(float) for row in rows]
    return sum((np.exp(1j * one) for one in vectors), np.zeros(store.dim, complex))


def test_banks_are_the_sums_of_their_facts_after_any_changes(home: Path) -> None:
    store = FactStore(home / "facts.db", dim=128)
    for number in range(40):
        store.add(f"Fact {number} of 'Place {number % 5}'", "project" if number % 3 else "tool")
    for number in range(1, 20, 2):
        store.remove(number)
        store.update(number + 1, {"content": f"Changed {number}", "category": "general"})
        store.update(number + 1, {"tags": "x"}, 0.1)
    for category in ("project", "tool", "general"):
        kept, count = store.bank(category)
        assert count == len(store.facts("WHERE category=?", (category,)))
        assert np.abs(kept - total(store, category)).max() < 1e-9
    table = store.vectors()
    assert table is not None
    assert sorted(table.ids) == [one["fact_id"] for one in store.facts("ORDER BY fact_id")]
    for one in store.facts("LIMIT 5"):
        phases = encode_fact(one["content"], store._names_of(one["fact_id"]), 128)
        (alike,) = store.alike(phases)
        assert max(alike, key=lambda key: alike[key]) == one["fact_id"]
        assert alike[one["fact_id"]] == pytest.approx(1.0, abs=1e-4)
    store.close()


def test_facts_of_another_program_get_their_vectors(home: Path) -> None:
    provider = begun(home)
    call(provider, "add", content=FACTS[0])
    with sqlite3.connect(home / "memory_store.db") as other:
        other.execute("INSERT INTO facts(content, category) VALUES ('The weir of Ann Baker leaks.', 'general')")
    assert "The weir of Ann Baker leaks." in contents(call(provider, "related", entity="Ann Baker weir"))
    kept, count = provider.store.bank("general")
    assert count == 2
    assert np.abs(kept - total(provider.store, "general")).max() < 1e-5
    provider.shutdown()


def test_several_processes_add_facts_at_once(home: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from herma.providers.bundled.holographic import FactStore\n"
        "store = FactStore(Path(sys.argv[1]), dim=64); store.add('It is ready ' + sys.argv[2])\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "for number in range(40): store.add(f'Fact {number} of process {sys.argv[2]}')\n"
    )
    words = [sys.executable, "-c", program, str(home / "facts.db")]
    pipe = subprocess.PIPE
    running = [subprocess.Popen([*words, str(number)], text=True, stdin=pipe, stdout=pipe) for number in range(3)]
    for one in running:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in running:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in running:
        one.communicate(timeout=120)
    assert [one.returncode for one in running] == [0, 0, 0]
    store = FactStore(home / "facts.db", dim=64)
    kept, count = store.bank("general")
    assert store.count() == count == 123
    assert np.abs(kept - total(store, "general")).max() < 1e-9
    store.close()


def test_a_change_that_fails_leaves_nothing_behind(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = begun(home)
    call(provider, "add", content=FACTS[0])
    with monkeypatch.context() as broken:
        broken.setattr(FactStore, "_put_bank", lambda *_: (_ for _ in ()).throw(apsw.FullError("disk full")))
        with pytest.raises(apsw.FullError):
            provider.store.add(FACTS[1])
    assert [one["content"] for one in provider.store.listed("", 0, 9)] == [FACTS[0]]
    assert contents(call(provider, "probe", entity="Ann Baker")) == [FACTS[0]]
    assert call(provider, "add", content=FACTS[1])["status"] == "added"
    provider.shutdown()


def test_sessions_share_one_store_and_it_survives_them(home: Path) -> None:
    one, other = begun(home), begun(home)
    assert one.store is other.store
    call(one, "add", content=FACTS[0])
    one.shutdown()
    assert contents(call(other, "list")) == [FACTS[0]]
    other.shutdown()
    again = begun(home, hrr_dim=256)
    assert contents(call(again, "probe", entity="Ann Baker")) == [FACTS[0]], "vectors of another length are made anew"
    assert again.store.dim == 256
    assert (home / "memory_store.db").stat().st_mode & 0o077 == 0
    again.shutdown()


def test_a_file_that_is_not_a_database_is_named(home: Path) -> None:
    (home / "memory_store.db").write_bytes(b"not a database at all, but longer than a header" * 9)
    (home / "config.yaml").write_text("memory:\n  provider: holographic\n")
    with Herma.open(home, flags={"embedding.model": "none"}) as h, h.session() as session:
        assert any("memory_store.db cannot be opened" in warning for warning in session.warnings)


def test_facts_come_back_from_a_backup(home: Path, tmp_path: Path) -> None:
    provider = begun(home, db_path="", default_trust=0.9)
    call(provider, "add", content=FACTS[0])
    (home / "config.yaml").write_text("memory:\n  provider: holographic\n")
    assert herma(home, "backup", "create", "--name", "facts").code == 0
    call(provider, "add", content=FACTS[1])
    provider.shutdown()
    (home / "holographic.json").write_text("{}")
    (home / "memory_store.db-wal").write_bytes(b"left by a process that was killed")
    assert herma(home, "backup", "restore", "facts", "--yes").code == 0
    provider = Holographic(home)
    provider.initialize("s-2")
    assert contents(call(provider, "list")) == [FACTS[0]]
    assert provider.values["default_trust"] == 0.9
    provider.shutdown()
    (home / "holographic.json").write_text(json.dumps({"db_path": str(tmp_path / "elsewhere.db")}))
    assert f"{tmp_path / 'elsewhere.db'} belongs to holographic" in herma(home, "backup", "create").err
