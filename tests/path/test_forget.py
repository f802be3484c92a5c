"""`herma forget`: nothing is left in any layer or byte of the home, the rest stays, and a cut-off run is finished."""

from __future__ import annotations

import json
import subprocess
import time
import zipfile
from pathlib import Path

import pytest
from tests.homes import PROGRAM, both_engines, call, conversation, herma, opened, skill_text, tool_turn

from herma import Add, Herma, Message, Scope

NAME = "Erika Müller-Weiß"


@pytest.fixture
def known(home: Path) -> str:
    """A home in which every layer names a person. → the session in which an agent wrote an entry."""
    with opened(home) as h:
        h.memory.apply("memory", Add("The project uses pytest."))
        h.memory.apply("memory", [Add(f"{NAME} lives in Kiel."), Add("Deploys are on Fridays.")])
        h.memory.apply("memory", Add(f"{NAME}'s time zone is CET."), scope=None)
        h.memory.undo()
        h.facts.list()
        with h.session(title=f"Call {NAME}") as s:
            tool_turn(
                s,
                f"Call {NAME.upper()}.",
                "lookup",
                {"who": NAME, "long": "x" * 30_000 + NAME},
                json.dumps({"n": NAME}),
            )
            call(s, "memory", action="add", target="user", content="Has a colleague in Kiel.")
        with h.session(title="Garden") as s:
            s.before_model("Water the roses.")
            s.after_model({"role": "assistant", "content": "Watered."})
        h.index.wait(embedding=False)
    return s.id


def left(home: Path, text: str = NAME) -> list[str]:
    """The files of the home in whose bytes a text stands, and the tables in whose rows it does."""
    if text == NAME and (escaped := left(home, json.dumps(NAME)[1:-1])):  # as JSON may have it
        return escaped
    archive = home.parent / "left.zip"
    archive.unlink(missing_ok=True)
    assert herma(home, "export", str(archive)).code == 0
    with zipfile.ZipFile(archive) as written:
        tables = [name for name in written.namelist() if text.lower().encode() in written.read(name).lower()]
    return tables + [
        file.name for file in home.rglob("*") if file.is_file() and text.lower().encode() in file.read_bytes().lower()
    ]


@both_engines
def test_a_text_is_gone_from_every_layer(home: Path, known: str) -> None:
    assert left(home)
    before = herma(home, "forget", "--match", "erika  MÜLLER-weiss", "--dry-run", "--json").json
    layers = {row["layer"] for row in before["rows"]}
    assert layers >= {"memory entries", "changes of memory", "messages", "sessions", "system prompts", "episodes"}
    done = herma(home, "forget", "--match", NAME, "--yes", "--json").json
    assert done["removed"] == before["removed"]
    assert left(home) == []
    again = herma(home, "forget", "--match", NAME, "--dry-run", "--json")
    assert (again.code, again.json["rows"]) == (1, [])
    with Herma.open(home) as h:
        assert h.memory.entries("memory") == ["The project uses pytest.", "Deploys are on Fridays."]
        assert [one.title for one in h.transcripts.list()] == ["Garden", None]
        first = h.transcripts.list()[-1]
        user, calls, *_ = h.transcripts.messages(first.id)
        assert (user.content, calls.tool_calls[0]["function"]["arguments"]) == ("[forgotten]", "{}")
        assert h.search("müller").hits == ()
        assert h.search("roses").hits
        with h.session(resume=first.id) as s:
            assert NAME not in json.dumps(s.before_model("And now?"))
        assert h.memory.undo(h.memory.changes()[0].id).ok
    assert left(home) == []
    assert herma(home, "doctor", "--full").code == 0


def test_a_conversation_goes_with_what_was_learned_from_it(home: Path, known: str) -> None:
    with opened(home) as h:
        session = h.transcripts.list()[-1].id
        h.skills.create("bake", skill_text("bake"))
    herma(home, "backup", "create")
    done = herma(home, "forget", "--session", session, "--yes", "--json").json
    assert any("backup" in one for one in done["unreached"])
    with Herma.open(home) as h:
        assert [one.title for one in h.transcripts.list()] == ["Garden"]
        assert h.memory.entries("user") == []
        assert f"{NAME} lives in Kiel." in h.memory.entries("memory")  # a person wrote it elsewhere
        assert h.transcripts.deleted() == []
    assert left(home, "colleague in Kiel") == []


def test_a_name_that_must_stay_is_reported(home: Path) -> None:
    with opened(home) as h:
        conversation(h, "Hello.", "Hi.", scope=Scope(project=f"/home/{NAME}"))
        conversation(h, f"I am {NAME}.", "Hi.")
    done = herma(home, "forget", "--match", NAME, "--yes", "--json").json
    assert "a name, an id or a path in the table sessions" in done["unreached"]
    assert left(home)[0] == "tables/sessions.jsonl"


@both_engines
def test_a_person_goes_with_their_profile(home: Path, known: str) -> None:
    with opened(home) as h:
        mine = conversation(h, "I grow tulips.", "Good.", scope=Scope("default", user="guest-7"))
        with h.session(user="guest-7") as s:
            call(s, "memory", action="add", target="user", content="Grows tulips.")
    assert herma(home, "forget", "--user", "guest-7", "--yes").code == 0
    assert left(home, "tulips") == []
    with Herma.open(home) as h:
        assert h.transcripts.get(mine) is None
        assert len(h.transcripts.list()) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--match", "ab"], "too short"),
        (["--session", "nobody"], "There is no session"),
        (["--user", "nobody"], "There is no user"),
        ([], "Give one of"),
        (["--match", "abc", "--user", "x"], "Give one of"),
        (["--match", "not here at all"], "Nothing was found"),
        (["--match", NAME], "add --yes"),
    ],
)
def test_what_cannot_be_forgotten_changes_nothing(home: Path, known: str, words: list[str], said: str) -> None:
    before = herma(home, "log", "--json").out
    ran = herma(home, "forget", *words)
    assert said in ran.err
    assert ran.code in (1, 2)
    assert herma(home, "log", "--json").out == before


def test_a_run_that_was_killed_is_finished_by_the_next(home: Path, known: str) -> None:
    with opened(home) as h:
        session = h.transcripts.start("cli")
        h.transcripts.append(session, [Message("user", f"{number}: {NAME} " + "y" * 2_000) for number in range(500)])
    command = [*PROGRAM, "forget", "--match", NAME, "--yes", "--home", str(home)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not (home / ".forget.json").exists() and process.poll() is None:
            time.sleep(0.005)
        process.kill()
    if (home / ".forget.json").exists():
        assert "herma forget" in herma(home, "doctor").out
        ran = herma(home, "forget")
        assert "Forgotten:" in ran.out, ran.err
    assert left(home) == []
    assert "Give one of" in herma(home, "forget").err
