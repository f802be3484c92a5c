"""Import transcripts of other programs: one reader a format, one pipeline that writes them.

- `base` is what a reader subclasses and yields; a package adds one by an entry point of the group `herma.importers`
- `agents` and `exports` hold the readers: of coding agents, and of assistants and files that they export
- `pipeline` finds transcripts on this machine, imports them, and takes an import back
- `rows` keeps what was imported, so that importing twice adds nothing
"""
