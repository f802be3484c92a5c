-- Format 4: what was imported from other programs, so that importing twice adds nothing and an import can be undone.

-- One row per import of transcripts from another program. undone: when it was taken back.
CREATE TABLE imports (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    at       REAL NOT NULL,
    source   TEXT NOT NULL,
    sessions INTEGER NOT NULL DEFAULT 0,
    messages INTEGER NOT NULL DEFAULT 0,
    undone   REAL
) STRICT;

-- Every session that was ever imported, and by which import. It outlives the session: what a person deletes does not come back.
CREATE TABLE import_sessions (
    id     TEXT PRIMARY KEY,
    import INTEGER NOT NULL REFERENCES imports (id)
) STRICT, WITHOUT ROWID;

-- Under which ids of the other program a message was imported; 0 is no message, but a call whose cost was counted.
CREATE TABLE import_keys (
    session INTEGER NOT NULL REFERENCES sessions (key),
    key     INTEGER NOT NULL,             -- the first eight bytes of BLAKE2b of the id
    message INTEGER NOT NULL,
    PRIMARY KEY (session, key)
) STRICT, WITHOUT ROWID;

-- Which messages each import appended to a session.
CREATE TABLE import_parts (
    import   INTEGER NOT NULL REFERENCES imports (id),
    session  INTEGER NOT NULL REFERENCES sessions (key),
    first_id INTEGER NOT NULL,
    last_id  INTEGER NOT NULL,
    PRIMARY KEY (import, first_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX import_parts_by_session ON import_parts (session);

-- How far each file was imported, so that a file that grew is read from there on.
CREATE TABLE import_files (
    path     TEXT PRIMARY KEY,
    source   TEXT NOT NULL,
    size     INTEGER NOT NULL,
    modified INTEGER NOT NULL,            -- nanoseconds since 1970
    position INTEGER NOT NULL,            -- the end of the last complete line
    lines    INTEGER NOT NULL,
    mark     BLOB NOT NULL                -- a hash of the bytes before that position
) STRICT, WITHOUT ROWID;
