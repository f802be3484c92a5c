-- schema --
-- index.db.vectors: derived from herma.db with the help of an embedder, and beside index.db because making it again costs
-- minutes where words cost seconds.
-- format; store_id and epoch of the feed; noticed: seq up to which what was purged is gone from here; appended: how many
-- messages came up to there; trouble, failures, retry_at: what the embedder last failed with.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
-- One row per model that was ever wanted and is not dropped. low … walked: see `Reach`. round counts how often everything
-- was begun to be walked, whole is the round after which what was not met was removed. versions: JSON, kind → version.
CREATE TABLE models (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    name      TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    used      REAL NOT NULL,
    low       INTEGER NOT NULL,
    high      INTEGER NOT NULL,
    low_part  INTEGER NOT NULL DEFAULT 0,
    high_part INTEGER NOT NULL DEFAULT 0,
    walked    INTEGER NOT NULL DEFAULT 0,
    vectors   INTEGER NOT NULL DEFAULT 0,
    round     INTEGER NOT NULL DEFAULT 1,
    whole     INTEGER NOT NULL DEFAULT 1,
    versions  TEXT NOT NULL DEFAULT '{}',
    UNIQUE (name, dimension)
) STRICT;
-- Sessions by a short number.
CREATE TABLE sessions (
    id      INTEGER PRIMARY KEY,
    session TEXT NOT NULL UNIQUE
) STRICT;
-- One row per vector; rows are added and removed, never given another vector, so that a process that has read up to an id
-- reads on from there. key is a number for messages, text for the rest. vector: 8-bit numbers, or empty where the
-- embedder refuses the text; checksum is its CRC-32.
CREATE TABLE vectors (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    model    INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    key      ANY NOT NULL,
    part     INTEGER NOT NULL,
    session  INTEGER NOT NULL,
    scope    TEXT NOT NULL,
    digest   INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    round    INTEGER NOT NULL,
    vector   BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX vectors_by_place ON vectors (kind, key, part, model);
CREATE INDEX vectors_by_digest ON vectors (digest, model);
CREATE INDEX vectors_of_others ON vectors (model, id) WHERE kind <> 'message';
-- Which vectors were removed, for processes that have them in memory; the oldest rows are dropped now and then.
CREATE TABLE removed (
    seq    INTEGER PRIMARY KEY AUTOINCREMENT,
    vector INTEGER NOT NULL
) STRICT;

-- models --
SELECT id, name, dimension, low, high, low_part, high_part, walked, vectors, used, whole < round, versions
  FROM models ORDER BY id;

-- add_model --
-- A new model begins at the end of what is noticed: new messages first, then back to the oldest.
INSERT INTO models (name, dimension, used, low, high) VALUES (?1, ?2, ?3, ?4, ?4)
    ON CONFLICT (name, dimension) DO UPDATE SET used = max(used, excluded.used);

-- walk_again --
UPDATE models SET round = round + 1, low = ?1, high = ?1, low_part = 0, high_part = 0, walked = 0, versions = '{}';

-- advance --
UPDATE models SET low = ?2, high = ?3, low_part = ?4, high_part = ?5, walked = ?6 WHERE id = ?1;

-- set_version --
UPDATE models SET versions = json_set(versions, '$.' || ?2, ?3) WHERE id = ?1;

-- stored --
SELECT key, part, digest, checksum, vector FROM vectors
 WHERE kind = ?1 AND key IN (SELECT value FROM json_each(?2)) AND model = ?3;

-- all_stored --
SELECT key, part, digest FROM vectors WHERE kind = ?1 AND model = ?2;

-- known --
SELECT digest, checksum, vector FROM vectors WHERE digest IN (SELECT value FROM json_each(?1)) AND model = ?2;

-- met --
-- Kept on this walk. Rows of this round are not written again.
UPDATE vectors SET round = (SELECT round FROM models WHERE id = ?3)
 WHERE kind = ?1 AND key IN (SELECT value FROM json_each(?2)) AND model = ?3
   AND round < (SELECT round FROM models WHERE id = ?3);

-- ids_of_keys --
SELECT id, model FROM vectors WHERE kind = ?1 AND key IN (SELECT value FROM json_each(?2)) AND (?3 = 0 OR model = ?3);

-- not_met --
SELECT id, model FROM vectors WHERE model = ?1 AND round < (SELECT round FROM models WHERE id = ?1)
   AND kind IN (SELECT value FROM json_each(?2)) LIMIT ?3;

-- of_model --
SELECT id, model FROM vectors WHERE model = ?1 LIMIT ?2;

-- add --
INSERT INTO vectors (model, kind, key, part, session, scope, digest, checksum, round, vector)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, (SELECT round FROM models WHERE id = ?1), ?9);

-- load_messages --
-- Vectors in the order they were added, from one on; no index, because that would mean sorting them.
SELECT id, key, session, vector FROM vectors NOT INDEXED
 WHERE id > ?1 AND model = ?2 AND kind = 'message' AND length(vector) = ?3 ORDER BY id LIMIT ?4;

-- load_others --
SELECT id, key, session, vector, kind, scope FROM vectors INDEXED BY vectors_of_others
 WHERE id > ?1 AND model = ?2 AND kind <> 'message' AND length(vector) = ?3 ORDER BY id LIMIT ?4;
