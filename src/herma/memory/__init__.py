"""The modules of herma.memory:

entries      text ↔ entries; apply(entries, operations) → outcome (pure)
store        MemoryStore: the one writer of MEMORY.md and USER.md; history, undo, inbox
live         changes that a running session has not been told yet
files        documents on disk and their rows: read, swap, settle
archive      entries that left the files (long tail): keep, find, recall, restore
tidy         merge, supersede, expire, move: plan and run
cli          herma memory: list, add, replace, remove, log, undo, …
cli_upkeep   herma memory pending, approve, reject, tidy, tail
"""
