"""Record docs/tour.svg: two chats on a temporary home, drawn as they appeared.

python scripts/record.py

The model is scripted, so that the recording is the same each time: in the first session it calls the memory tool, in
the second it answers with what its system prompt says. Everything else is real.
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from herma.testing import Answer, Asked, ScriptedModel

TARGET = Path(__file__).resolve().parent.parent / "docs" / "tour.svg"
WIDTH = 100
TOLD = "Staging runs on port 5433 since the move."
COMMANDS = [
    f'herma chat -p "{TOLD} Remember that."',
    'herma chat -p "Which port does staging use?"',
    "herma log",
    "herma undo",
    'herma search "staging port"',
]


def script(asked: Asked) -> Answer:
    """Answer from the request alone: remember what is told, and look up the port in the system prompt."""
    if asked.messages[-1]["role"] == "tool":
        return Answer("Noted.")
    if "Which port" in asked.last:
        known = re.search(r"port (\d+)", str(asked.messages[0]["content"]))
        return Answer(f"On port {known[1]}; you told me in an earlier session." if known else "I do not know.")
    return Answer.calling("memory", {"action": "add", "target": "memory", "content": TOLD})


def run(command: str, environment: dict[str, str]) -> str:
    """Return what the command writes to a terminal; of a chat, what it writes to a pipe: no passing progress."""
    if "chat" in command:
        done = subprocess.run(shlex.split(command), env=environment, check=True, text=True, capture_output=True)
        return f"{done.stderr}{done.stdout}"
    output = b""
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe("herma", shlex.split(command), environment)  # noqa: S606  our own program
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the terminal closes with the last process on it
            break
        if not piece:
            break
        output += piece
    os.waitpid(child, 0)
    return output.decode().replace("\r\n", "\n")


def main() -> None:
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor")
    with tempfile.TemporaryDirectory() as folder, ScriptedModel(script, name="scripted") as model:
        binaries = str(Path(sys.executable).parent)
        environment = {
            "HOME": folder,
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "TERM": "xterm-256color",
            "COLUMNS": str(WIDTH),
            "LANG": "C.UTF-8",
        }
        for key, value in (("model.url", model.url), ("model.name", "scripted")):
            subprocess.run(["herma", "config", "set", key, value], env=environment, check=True, capture_output=True)
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            console.print(Text.from_ansi(run(command, environment).replace(folder, "~").rstrip()))
            console.print()
    TARGET.write_text(console.export_svg(title="herma", unique_id="herma"), encoding="utf-8")
    print(f"wrote {TARGET.name}")


if __name__ == "__main__":
    main()
