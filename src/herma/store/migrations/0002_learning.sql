-- Format 2: where sessions took place, and what is learnt from them.

ALTER TABLE sessions ADD COLUMN provider TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN chat_type TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN folder TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN branch TEXT NOT NULL DEFAULT '';

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
    reasoning   INTEGER NOT NULL
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
