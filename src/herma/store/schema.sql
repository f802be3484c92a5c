-- herma.db, version 4: everything that cannot be rebuilt.
-- Plain SQL that any SQLite from 3.37 on can read: no custom functions, collations or binary JSON.
-- Times are seconds since 1970. Scope columns are '' where they do not apply.

-- Facts about this database: store_id (its identity), epoch (new after restore and repair).
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per change to a curated document. The text before a change is the text after the one before it: hand edits are rows too,
-- so the chain has no gaps. state: open (intended; of the newest one only the file can tell whether it happened, an older one did),
-- done (recorded after it happened: a hand edit), void (never happened).
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
CREATE INDEX curated_inbox_rejected ON curated_inbox (profile, user, target) WHERE decision = 'rejected';

-- One row per session. key is used inside, id outside. parent may name a session that is not here. conversation is the id of the first
-- session of the same conversation: resume and compression go on with their parent's, the other reasons begin their own.
-- last_active, preview and the counts are kept up to date by every append, so that listing reads nothing else.
CREATE TABLE sessions (
    key                INTEGER PRIMARY KEY,
    id                 TEXT NOT NULL UNIQUE,
    source             TEXT NOT NULL,
    profile            TEXT NOT NULL,
    project            TEXT NOT NULL,
    user               TEXT NOT NULL,
    chat               TEXT NOT NULL,
    model              TEXT,
    title              TEXT,
    parent             TEXT,
    reason             TEXT NOT NULL CHECK (reason IN ('new', 'resume', 'branch', 'compression', 'delegation')),
    conversation       TEXT NOT NULL,
    started            REAL NOT NULL,
    ended              REAL,
    end_reason         TEXT,
    archived           INTEGER NOT NULL DEFAULT 0 CHECK (archived IN (0, 1)),
    deleted            REAL,                        -- since when it waits to be purged; hidden everywhere meanwhile
    prompt             INTEGER REFERENCES payloads (id),
    message_count      INTEGER NOT NULL DEFAULT 0,  -- messages that are not hidden
    tool_call_count    INTEGER NOT NULL DEFAULT 0,
    input_tokens       INTEGER NOT NULL DEFAULT 0,
    output_tokens      INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens  INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens   INTEGER NOT NULL DEFAULT 0,
    cost_usd           REAL NOT NULL DEFAULT 0,
    last_active        REAL NOT NULL,
    preview            TEXT NOT NULL DEFAULT '',    -- the first words of the first message of the user
    provider           TEXT NOT NULL DEFAULT '',    -- who runs the model
    chat_type          TEXT NOT NULL DEFAULT '',    -- direct, group, channel …
    folder             TEXT NOT NULL DEFAULT '',    -- the working directory
    branch             TEXT NOT NULL DEFAULT '',    -- the git branch in it
    imported           REAL,                        -- when it was imported; NULL for our own
    prompt_outside     TEXT                         -- JSON array: spans of the prompt from outside, as in messages.outside
) STRICT;

CREATE INDEX sessions_by_activity ON sessions (last_active);
CREATE INDEX sessions_by_conversation ON sessions (conversation);
CREATE INDEX sessions_by_parent ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_deleted ON sessions (deleted) WHERE deleted IS NOT NULL;
CREATE INDEX sessions_by_prompt ON sessions (prompt) WHERE prompt IS NOT NULL;
CREATE UNIQUE INDEX sessions_by_title ON sessions (title, profile, user) WHERE title IS NOT NULL AND deleted IS NULL;

-- One row per message; only `hidden` ever changes. content, parts, tool_calls, reasoning, sent, sent_parts and extra are text (parts,
-- calls and extra: JSON), or a BLOB where the value is put together from pieces: a JSON array whose strings are pieces as they are and
-- whose numbers are ids of payloads. Either content or parts is set, or neither; likewise sent and sent_parts.
CREATE TABLE messages (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    session       INTEGER NOT NULL REFERENCES sessions (key),
    role          TEXT NOT NULL,
    timestamp     REAL NOT NULL,
    content       ANY,
    parts         ANY,
    tool_calls    ANY,
    tool_call_id  TEXT,
    tool_name     TEXT,
    reasoning     ANY,
    sent          ANY,                    -- what the model was really sent, where that differs from content
    sent_parts    ANY,
    told          TEXT,                   -- which curated state the model knows after this message
    tokens        INTEGER,
    finish_reason TEXT,
    hidden        TEXT NOT NULL DEFAULT '' CHECK (hidden IN ('', 'rewound', 'compacted')),
    extra         ANY,                    -- fields of the original message that have no place of their own
    outside       TEXT                    -- JSON array of [start, end, origin]: text from outside. NULL: not recorded
) STRICT;

CREATE INDEX messages_by_session ON messages (session);

-- Large values, stored once: long outputs, base64 runs, system prompts. A BLOB holds the UTF-8 of the text as its codec says.
CREATE TABLE payloads (
    id    INTEGER PRIMARY KEY,
    hash  BLOB NOT NULL UNIQUE,           -- SHA-256 of the UTF-8 of the text
    size  INTEGER NOT NULL,               -- its length in bytes
    kind  TEXT NOT NULL CHECK (kind IN ('text', 'base64')),
    codec TEXT NOT NULL CHECK (codec IN ('plain', 'zstd')),
    data  BLOB NOT NULL
) STRICT;

CREATE TABLE payload_uses (
    payload INTEGER NOT NULL REFERENCES payloads (id),
    message INTEGER NOT NULL REFERENCES messages (id),
    PRIMARY KEY (payload, message)
) STRICT, WITHOUT ROWID;

CREATE INDEX payload_uses_by_message ON payload_uses (message);

-- What a derived index follows: messages first_id … first_id + count - 1 were appended (gone = 0) or are gone for good (gone = 1).
-- A row is written in the transaction that it describes; rows are never removed from the end.
CREATE TABLE changes (
    seq      INTEGER PRIMARY KEY,
    gone     INTEGER NOT NULL CHECK (gone IN (0, 1)),
    first_id INTEGER NOT NULL,
    count    INTEGER NOT NULL
) STRICT;

-- The prefix ledger: one row per call to a model, written when its reply was stored. Numbers only, so rows outlive their sessions:
-- what was spent stays known. reusable + fresh are the tokens sent; naive_…: had memory been written afresh into the system prompt.
CREATE TABLE calls (
    id             INTEGER PRIMARY KEY,
    session        TEXT NOT NULL,
    at             REAL NOT NULL,
    model          TEXT NOT NULL,
    messages       INTEGER NOT NULL,            -- how many were sent, without the system prompt
    last_message   INTEGER NOT NULL,            -- the id of the last of them
    tools          TEXT NOT NULL,               -- a digest of the tool definitions
    prompt         TEXT NOT NULL,               -- a digest of the system prompt
    reusable       INTEGER NOT NULL,
    fresh          INTEGER NOT NULL,
    output         INTEGER NOT NULL,
    reason         TEXT NOT NULL,               -- why not more was reusable
    at_message     INTEGER,                     -- where the prefix broke; 0 is the system prompt
    idle           REAL,                        -- seconds since the call before
    counts         TEXT NOT NULL CHECK (counts IN ('measured', 'exact', 'estimated')),
    naive_reusable INTEGER NOT NULL,
    naive_fresh    INTEGER NOT NULL,
    cost_usd       REAL,                        -- as the caller said; NULL when it did not
    provider       TEXT NOT NULL DEFAULT '',    -- who ran the model, where, and on which git branch: sessions have the newest
    folder         TEXT NOT NULL DEFAULT '',
    branch         TEXT NOT NULL DEFAULT '',
    answered       INTEGER NOT NULL DEFAULT 1   -- 0: no whole reply came, so that what it took is estimated
) STRICT;

CREATE INDEX calls_by_session ON calls (session);
CREATE INDEX calls_by_time ON calls (at);

-- Episodic memory: one row per conversation that had something in it, made at its end and made again when it goes on. Its texts are taken
-- from the transcript, so it goes when a session of its conversation is purged. archived: folded into the digest of its month, which is
-- made from these rows when somebody asks for it.
CREATE TABLE episodes (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation   TEXT NOT NULL UNIQUE,
    session_id     TEXT NOT NULL,               -- the last session of the conversation
    source         TEXT NOT NULL,
    profile        TEXT NOT NULL,
    project        TEXT NOT NULL,
    user           TEXT NOT NULL,
    started        REAL NOT NULL,
    ended          REAL NOT NULL,
    task           TEXT NOT NULL,
    category       TEXT NOT NULL,
    steps          TEXT NOT NULL,               -- JSON array of strings
    tools          TEXT NOT NULL,               -- JSON object: name → how often
    outcome        TEXT NOT NULL CHECK (outcome IN ('successful', 'resolved', 'failed', 'interrupted', 'unclear')),
    why            TEXT NOT NULL,               -- what the outcome rests on
    result         TEXT NOT NULL,
    error          TEXT NOT NULL,
    remedy         TEXT NOT NULL,
    skills_applied TEXT NOT NULL,               -- JSON array of strings
    skills_created TEXT NOT NULL,               -- JSON array of strings
    first_message  INTEGER NOT NULL,
    last_message   INTEGER NOT NULL,
    built_by       TEXT NOT NULL CHECK (built_by IN ('rules', 'model')),
    updated        REAL NOT NULL,
    uses           INTEGER NOT NULL DEFAULT 0,
    last_used      REAL,
    superseded_by  INTEGER,                     -- a later episode of the same task
    archived       REAL,
    task_key       TEXT NOT NULL                -- the task folded to its words: who has the same one was after the same thing
) STRICT;

CREATE INDEX episodes_live ON episodes (profile, user, ended) WHERE archived IS NULL;
CREATE INDEX episodes_of_project ON episodes (profile, user, project, ended) WHERE archived IS NULL;
CREATE INDEX episodes_by_update ON episodes (updated);
CREATE INDEX episodes_archived ON episodes (ended) WHERE archived IS NOT NULL;
CREATE INDEX episodes_by_task ON episodes (task_key);
CREATE INDEX episodes_by_superseder ON episodes (superseded_by) WHERE superseded_by IS NOT NULL;

-- By which words live episodes are found: written with an episode, gone with it, and made again by `herma episodes rebuild --all`.
CREATE TABLE episode_terms (
    term    TEXT NOT NULL,
    episode INTEGER NOT NULL,
    PRIMARY KEY (term, episode)
) STRICT, WITHOUT ROWID;

CREATE INDEX episode_terms_by_episode ON episode_terms (episode);

-- Where the work stood when a conversation was last left. finished: whether the last request was answered.
CREATE TABLE session_states (
    conversation TEXT PRIMARY KEY,
    session_id   TEXT NOT NULL,
    profile      TEXT NOT NULL,
    project      TEXT NOT NULL,
    user         TEXT NOT NULL,
    at           REAL NOT NULL,
    folder       TEXT NOT NULL,
    branch       TEXT NOT NULL,
    open_tasks   TEXT NOT NULL,                 -- JSON array of strings
    files        TEXT NOT NULL,                 -- JSON array of strings
    next_step    TEXT NOT NULL,
    last_request TEXT NOT NULL,
    finished     INTEGER NOT NULL CHECK (finished IN (0, 1)),
    built_by     TEXT NOT NULL CHECK (built_by IN ('rules', 'model'))
) STRICT, WITHOUT ROWID;

CREATE INDEX session_states_by_place ON session_states (profile, user, project, at);

-- Keyed facts. Those of curated memory are made from its history and can be made again from it; those that a review or a person stated
-- are here only. until: a newer value took its place, or its entry was taken out. forgotten: a person does not want it; it stays so when
-- facts are made again.
CREATE TABLE facts (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    profile    TEXT NOT NULL,
    project    TEXT NOT NULL,
    user       TEXT NOT NULL,
    subject    TEXT NOT NULL,
    attribute  TEXT NOT NULL,
    value      TEXT NOT NULL,
    valid_from REAL NOT NULL,
    until      REAL,
    source     TEXT NOT NULL CHECK (source IN ('curated', 'review', 'user')),
    text       TEXT NOT NULL,                   -- the entry or sentence that says so
    target     TEXT NOT NULL,                   -- which curated file; '' for other sources
    change_id  INTEGER,
    session_id TEXT,
    message_id INTEGER,
    forgotten  REAL
) STRICT;

CREATE INDEX facts_by_key ON facts (profile, project, user, subject, attribute);
CREATE INDEX facts_by_session ON facts (session_id) WHERE session_id IS NOT NULL;

-- How far the history of each curated file has been read for facts.
CREATE TABLE facts_read (
    profile   TEXT NOT NULL,
    project   TEXT NOT NULL,
    user      TEXT NOT NULL,
    target    TEXT NOT NULL,
    change_id INTEGER NOT NULL,
    PRIMARY KEY (profile, project, user, target)
) STRICT, WITHOUT ROWID;

-- One row per change to a file of a skill. path: the folder of the skill under skills/; file: inside it, '' where the whole folder was
-- moved (archive, restore, install) and moved_from, moved_to say where from and to. Texts are TEXT, other bytes BLOB, no file NULL.
-- state: open (intended; the files tell whether it happened), done, void (never happened).
CREATE TABLE skill_changes (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    at          REAL NOT NULL,
    profile     TEXT NOT NULL,
    skill       TEXT NOT NULL,
    path        TEXT NOT NULL,
    file        TEXT NOT NULL,
    who         TEXT NOT NULL,
    origin      TEXT NOT NULL,
    session_id  TEXT,
    message_id  INTEGER,
    action      TEXT NOT NULL,
    reason      TEXT NOT NULL,
    undoes      INTEGER REFERENCES skill_changes (id),
    before_hash TEXT NOT NULL,            -- '' where there was no file
    after_hash  TEXT NOT NULL,
    before      ANY,
    after       ANY,
    moved_from  TEXT NOT NULL DEFAULT '',
    moved_to    TEXT NOT NULL DEFAULT '',
    state       TEXT NOT NULL CHECK (state IN ('open', 'done', 'void'))
) STRICT;

CREATE INDEX skill_changes_by_path ON skill_changes (profile, path, file, id);
CREATE INDEX skill_changes_by_skill ON skill_changes (profile, skill, id);
CREATE INDEX skill_changes_open ON skill_changes (id) WHERE state = 'open';
CREATE INDEX skill_changes_by_undone ON skill_changes (undoes) WHERE undoes IS NOT NULL;

-- Staged writes to skills that wait for a person. decision is NULL while waiting.
CREATE TABLE skill_inbox (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    at          REAL NOT NULL,
    expires     REAL NOT NULL,
    profile     TEXT NOT NULL,
    who         TEXT NOT NULL,
    origin      TEXT NOT NULL,
    session_id  TEXT,
    message_id  INTEGER,
    reason      TEXT NOT NULL,
    operation   TEXT NOT NULL,            -- JSON object
    fingerprint TEXT NOT NULL,            -- of profile and operation: the same proposal is kept once
    decision    TEXT CHECK (decision IN ('approved', 'rejected')),
    decided     REAL
) STRICT;

CREATE INDEX skill_inbox_by_fingerprint ON skill_inbox (fingerprint);
CREATE INDEX skill_inbox_waiting ON skill_inbox (id) WHERE decision IS NULL;

-- How each skill is used and how it did, by its name: numbers outlive the files, and come back with them.
CREATE TABLE skill_usage (
    profile      TEXT NOT NULL,
    name         TEXT NOT NULL,
    uses         INTEGER NOT NULL DEFAULT 0,
    views        INTEGER NOT NULL DEFAULT 0,
    successes    INTEGER NOT NULL DEFAULT 0,
    failures     INTEGER NOT NULL DEFAULT 0,
    patches      INTEGER NOT NULL DEFAULT 0,
    created      REAL,
    last_used    REAL,
    last_viewed  REAL,
    last_patched REAL,
    state        TEXT NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'needs_review', 'stale', 'deprecated', 'archived')),
    pinned       INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1)),
    origin       TEXT NOT NULL DEFAULT 'found',
    source       TEXT NOT NULL DEFAULT '',
    vouched      TEXT NOT NULL DEFAULT '',   -- hash of the SKILL.md that a person trusts although the scanner objects
    archived_at  REAL,
    PRIMARY KEY (profile, name)
) STRICT, WITHOUT ROWID;

-- What background work took: one row per call to a model that nobody asked for. While a call runs, tokens and usd are the most that it may
-- take; a process that dies leaves them so. usd: NULL where the price is not known.
CREATE TABLE spending (
    id          INTEGER PRIMARY KEY,
    day         TEXT NOT NULL,                  -- the local day, as 2026-12-31
    at          REAL NOT NULL,
    purpose     TEXT NOT NULL,
    model       TEXT NOT NULL,
    settled     INTEGER NOT NULL CHECK (settled IN (0, 1)),
    tokens      INTEGER NOT NULL,
    usd         REAL,
    input       INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    cache_read  INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    reasoning   INTEGER NOT NULL,
    estimated   INTEGER NOT NULL DEFAULT 0      -- 1: the call failed, or its server did not say what it took
) STRICT;

CREATE INDEX spending_by_day ON spending (day, purpose);

-- What was tried to shorten a conversation, so that a failing model is left alone for a while and nothing is tried for ever.
CREATE TABLE compression_tries (
    conversation TEXT PRIMARY KEY,
    failures     INTEGER NOT NULL,
    not_before   REAL NOT NULL,                 -- when a model may be asked again
    ineffective  INTEGER NOT NULL               -- compressions in a row after which the context was as full as before
) STRICT, WITHOUT ROWID;

-- Looking back at conversations: when, why, at which messages, and what came of it. While one runs it holds a lease, so that no other process
-- looks back at the same conversation; a process that dies leaves it to run out. A row that is due waits for somebody with a model.
CREATE TABLE reviews (
    id            INTEGER PRIMARY KEY,
    conversation  TEXT NOT NULL,
    session_id    TEXT NOT NULL,
    kind          TEXT NOT NULL CHECK (kind IN ('turn', 'remember', 'boundary', 'end')),
    why           TEXT NOT NULL,
    first_message INTEGER NOT NULL,
    last_message  INTEGER NOT NULL,
    at            REAL NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('due', 'running', 'done', 'cancelled', 'failed', 'refused')),
    tries         INTEGER NOT NULL,
    lease         REAL NOT NULL,             -- until when it may run
    begun         REAL,
    ended         REAL,
    model         TEXT NOT NULL,
    steps         INTEGER NOT NULL,
    input         INTEGER NOT NULL,
    output        INTEGER NOT NULL,
    cache_read    INTEGER NOT NULL,
    cache_write   INTEGER NOT NULL,
    reasoning     INTEGER NOT NULL,
    usd           REAL,
    actions       TEXT NOT NULL,             -- JSON: what was written, and what was refused and why
    notice        TEXT NOT NULL
) STRICT;

CREATE INDEX reviews_by_conversation ON reviews (conversation, kind, last_message);
CREATE INDEX reviews_unfinished ON reviews (id) WHERE state IN ('due', 'running');

-- The long tail: entries that were taken out of a curated document and are still kept. A row is written in the transaction that records the
-- change that takes the entry out. It counts while that change stands and no standing change has brought the entry back (back), so that an
-- undo needs to do nothing here.
CREATE TABLE curated_tail (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    profile   TEXT NOT NULL,
    project   TEXT NOT NULL,
    user      TEXT NOT NULL,
    target    TEXT NOT NULL,
    hash      TEXT NOT NULL,                    -- of the text: what is known about the entry stays in curated_entries
    text      TEXT NOT NULL,
    at        REAL NOT NULL,
    why       TEXT NOT NULL CHECK (why IN ('room', 'expired', 'superseded')),
    change_id INTEGER NOT NULL,                 -- the change that took it out
    back      INTEGER,                          -- the change that brought it back
    uses      INTEGER NOT NULL DEFAULT 0,       -- conversations in which it was recalled
    last_used REAL,
    proposed  REAL,                             -- when it was last proposed for the prompt
    forgotten REAL                              -- a person does not want it
) STRICT;

CREATE INDEX curated_tail_by_entry ON curated_tail (profile, project, user, target, hash);
CREATE INDEX curated_tail_by_change ON curated_tail (change_id);
CREATE INDEX curated_tail_by_back ON curated_tail (back) WHERE back IS NOT NULL;

-- By which words entries of the long tail are found.
CREATE TABLE curated_tail_terms (
    term  TEXT NOT NULL,
    entry INTEGER NOT NULL,
    PRIMARY KEY (term, entry)
) STRICT, WITHOUT ROWID;

CREATE INDEX curated_tail_terms_by_entry ON curated_tail_terms (entry);

-- In which conversations an entry of the long tail was recalled: each counts once.
CREATE TABLE curated_tail_uses (
    entry        INTEGER NOT NULL,
    conversation TEXT NOT NULL,
    PRIMARY KEY (entry, conversation)
) STRICT, WITHOUT ROWID;

-- When each curated document was last tidied, and the version that it had then.
CREATE TABLE curated_tidied (
    profile TEXT NOT NULL,
    project TEXT NOT NULL,
    user    TEXT NOT NULL,
    target  TEXT NOT NULL,
    at      REAL NOT NULL,
    version TEXT NOT NULL,
    PRIMARY KEY (profile, project, user, target)
) STRICT, WITHOUT ROWID;

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

-- Which messages each import appended to a session; with negative ids, which ones it took back.
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
