"""`herma sessions`: transcripts for people. `desk` is what the commands share; each other module is a few of them."""

from herma.cli.sessions import expand, find, look, mark, move, numbers, resume, show, sweep
from herma.cli.sessions.desk import sessions

__all__ = ["expand", "find", "look", "mark", "move", "numbers", "resume", "sessions", "show", "sweep"]
