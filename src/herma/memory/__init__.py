"""The modules of herma.memory:

store        MemoryStore: the one writer of MEMORY.md and USER.md; history, undo, inbox
entries      text ↔ entries; apply(entries, operations) → outcome (pure)
files        documents on disk and their rows: read, swap, settle; what a session is shown of them
archive      entries that left the files: keep, find, recall, restore
tidy         merge, supersede, expire, move: plan and propose; whether two texts say the same
cli          herma memory
"""
