"""`herma search`, which is `herma sessions search` for people who type it often."""

from herma.cli.sessions.find import search

__all__ = ["search"]
