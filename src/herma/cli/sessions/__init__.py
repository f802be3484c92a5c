"""`herma sessions`: transcripts for people. `desk` is what the commands share; each other module is a few of them."""

from herma.cli.sessions import find, look, mark, move, numbers, show, sweep
from herma.cli.sessions.desk import sessions

__all__ = ["find", "look", "mark", "move", "numbers", "sessions", "show", "sweep"]
