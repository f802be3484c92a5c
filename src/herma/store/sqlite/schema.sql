-- herma.db, version 1: everything that cannot be rebuilt.
-- Plain SQL that any SQLite from 3.37 on can read: no custom functions, collations or binary JSON.
-- Times are seconds since 1970. Scope columns are '' where they do not apply.

-- Facts about this database: store_id (its identity), epoch (new after restore and repair).
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per change to a curated document. The text before a change is the text after the one before it: hand edits are rows too,
-- so the chain has no gaps. state: open (intended; the file may or may not have been replaced), done, void (never happened).
CREATE TABLE curated_changes (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    at          REAL NOT NULL,
    profile     TEXT NOT NULL,
    project     TEXT NOT NULL,
    user        TEXT NOT NULL,
    target      TEXT NOT NULL CHECK (target IN ('memory', 'user')),
    who         TEXT NOT NULL,
    origin      TEXT NOT NULL,
    session_id  TEXT,
    message_id  INTEGER,
    action      TEXT NOT NULL,
    reason      TEXT NOT NULL,
    undoes      INTEGER REFERENCES curated_changes (id),
    before_hash TEXT NOT NULL,
    after_hash  TEXT NOT NULL,
    after_text  TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('open', 'done', 'void'))
) STRICT;

CREATE INDEX curated_changes_by_place ON curated_changes (profile, project, user, target, id);
CREATE INDEX curated_changes_by_undone ON curated_changes (undoes) WHERE undoes IS NOT NULL;

-- What is known about an entry besides its text, found again by the hash of that text. Rows outlive their entries, so that an undo
-- brings back what was known too.
CREATE TABLE curated_entries (
    profile   TEXT NOT NULL,
    project   TEXT NOT NULL,
    user      TEXT NOT NULL,
    target    TEXT NOT NULL,
    hash      TEXT NOT NULL,
    category  TEXT,
    tags      TEXT NOT NULL,              -- JSON array of strings
    origin    TEXT,
    vouched   INTEGER NOT NULL DEFAULT 0, -- a person said: trust it although the scanner objects
    created   REAL,
    changed   REAL,
    confirmed REAL,
    change_id INTEGER,
    PRIMARY KEY (profile, project, user, target, hash)
) STRICT, WITHOUT ROWID;

-- Staged writes that wait for a person. decision is NULL while waiting.
CREATE TABLE curated_inbox (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    at          REAL NOT NULL,
    expires     REAL NOT NULL,
    profile     TEXT NOT NULL,
    project     TEXT NOT NULL,
    user        TEXT NOT NULL,
    target      TEXT NOT NULL,
    who         TEXT NOT NULL,
    origin      TEXT NOT NULL,
    session_id  TEXT,
    message_id  INTEGER,
    reason      TEXT NOT NULL,
    operations  TEXT NOT NULL,            -- JSON array
    fingerprint TEXT NOT NULL,            -- of scope, target and operations: the same proposal is kept once
    decision    TEXT CHECK (decision IN ('approved', 'rejected')),
    decided     REAL
) STRICT;

CREATE INDEX curated_inbox_by_fingerprint ON curated_inbox (fingerprint);
CREATE INDEX curated_inbox_waiting ON curated_inbox (id) WHERE decision IS NULL;
