"""The modules of herma.store:

files        locks, atomic replace, per-home locks (the only fsync in the house)
database     herma.db: open, refuse, migrate, group commit, reader pool, error translation
backup       create, verify, prune
restore      restore, resumable
salvage_pages SQLite pages and write-ahead log, read as bytes (generic; could be a package of its own)
salvage      a new herma.db from what can be read
checkup      backup and restore need state_of: store may not import doctor
"""
