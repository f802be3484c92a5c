"""`herma memory`: curated memory for people. `desk` is what the commands share; each other module is a few of them."""

from herma.cli.memory import decide, files, look, tail, tidy, trace, write
from herma.cli.memory.desk import memory

__all__ = ["decide", "files", "look", "memory", "tail", "tidy", "trace", "write"]
