-- schema --
-- index.db: derived from herma.db, rebuilt from it at any time.
-- store_id, epoch and seq of the change feed up to which this index is complete; format of this file.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
-- Every indexed message, with a digest of the text it was indexed with.
CREATE TABLE docs (
    id     INTEGER PRIMARY KEY,
    digest INTEGER NOT NULL
) STRICT;
-- Messages id/32768 = shard are in the FTS5 table shard_<id>. stage: 0 filling, 1 being merged into one segment,
-- 2 being weighed, 3 weighed (then checksum is that of its words, lists_checksum that of its rows in the tables below).
-- version: how often it has changed.
CREATE TABLE shards (
    id             INTEGER PRIMARY KEY,
    messages       INTEGER NOT NULL DEFAULT 0,
    stage          INTEGER NOT NULL DEFAULT 0,
    version        INTEGER NOT NULL DEFAULT 0,
    checksum       INTEGER NOT NULL DEFAULT 0,
    lists_checksum INTEGER NOT NULL DEFAULT 0
) STRICT;
-- Of a shard that is no longer filling: the words that are frequent in it, and in how many messages they are.
CREATE TABLE frequent (
    shard    INTEGER NOT NULL,
    term     TEXT NOT NULL,
    messages INTEGER NOT NULL,
    list     INTEGER NOT NULL,
    PRIMARY KEY (shard, term)
) STRICT, WITHOUT ROWID;
-- These messages, the ones it weighs most in first: the beginning of the list, and the rest of it. In a table of their
-- own: SQLite reads whole rows on its way through a tree. id: shard * 1048576 + a number.
CREATE TABLE lists (
    id     INTEGER PRIMARY KEY,
    strong BLOB NOT NULL,
    rest   BLOB
) STRICT;
-- And all other words of it, many to a row. id: shard * 8192 + the row of a word in its shard.
CREATE TABLE rare (
    id    INTEGER PRIMARY KEY,
    words BLOB NOT NULL
) STRICT;

-- create_shard --
-- Words of one shard, without the text itself, and two views of them that FTS5 provides.
CREATE VIRTUAL TABLE shard_{shard} USING fts5(
    text, names, content = '', contentless_delete = 1,
    tokenize = "porter unicode61 remove_diacritics 2 categories 'L* M* N* Co'"
);
CREATE VIRTUAL TABLE shard_{shard}_terms USING fts5vocab(shard_{shard}, row);
CREATE VIRTUAL TABLE shard_{shard}_places USING fts5vocab(shard_{shard}, instance);
INSERT INTO shard_{shard} (shard_{shard}, rank) VALUES ('automerge', 0);
INSERT INTO shard_{shard} (shard_{shard}, rank) VALUES ('crisismerge', 64);
INSERT INTO shards (id) VALUES ({shard});

-- insert --
INSERT INTO shard_{shard} (rowid, text, names) VALUES (?, ?, ?)

-- delete --
DELETE FROM shard_{shard} WHERE rowid = ?

-- merge --
-- Merge a number of pages; a negative number first asks for everything to become one segment.
INSERT INTO shard_{shard} (shard_{shard}, rank) VALUES ('merge', ?)

-- known --
SELECT id, digest FROM docs WHERE id IN (SELECT value FROM json_each(?))

-- changed_shard --
-- After messages came or went: what was weighed no longer holds.
UPDATE shards SET messages = messages + ?2, stage = 0, version = version + 1, checksum = 0, lists_checksum = 0
WHERE id = ?1

-- shards --
SELECT id, messages, stage FROM shards ORDER BY id DESC

-- unfinished --
-- The oldest shard with work left; the newest one is still filling.
SELECT id, stage, version FROM shards
WHERE stage < 3 AND id < (SELECT max(id) FROM shards) ORDER BY id LIMIT 1

-- forget --
DELETE FROM frequent WHERE shard = {shard};
DELETE FROM lists WHERE id >= {shard} * 1048576 AND id < ({shard} + 1) * 1048576;
DELETE FROM rare WHERE id >= {shard} * 8192 AND id < ({shard} + 1) * 8192;

-- weighed --
UPDATE shards SET stage = ?, checksum = ?, lists_checksum = ? WHERE id = ?

-- lengths --
SELECT id, sz FROM shard_{shard}_docsize

-- places --
-- Each word after a given one, with the messages it occurs in, once per occurrence.
SELECT term, group_concat(doc, ' ') FROM shard_{shard}_places WHERE term > ? GROUP BY term

-- matching --
-- Newest first: FTS5 walks its lists from either end.
SELECT rowid FROM shard_{shard} WHERE shard_{shard} MATCH ? ORDER BY rowid DESC LIMIT ?

-- scored --
SELECT rowid, bm25(shard_{shard}) FROM shard_{shard} WHERE shard_{shard} MATCH ? ORDER BY rowid DESC LIMIT ?

-- weighted --
-- Oldest first, which is how FTS5 keeps its lists: a third faster than from the other end.
SELECT rowid, weight(shard_{shard}) FROM shard_{shard} WHERE shard_{shard} MATCH ? LIMIT ?

-- newest_weighted --
SELECT rowid, weight(shard_{shard}) FROM shard_{shard} WHERE shard_{shard} MATCH ? ORDER BY rowid DESC LIMIT ?

-- best --
-- Of the newest so many, the best so many.
SELECT rowid, score FROM (
    SELECT rowid, bm25(shard_{shard}) AS score FROM shard_{shard} WHERE shard_{shard} MATCH ? ORDER BY rowid DESC LIMIT ?
) ORDER BY score, rowid DESC LIMIT ?

-- count --
SELECT count(*) FROM shard_{shard} WHERE shard_{shard} MATCH ?

-- lists --
-- In which shards words are frequent, how often they occur there, and the beginnings of their lists.
SELECT words.value, shards.id, frequent.messages, lists.strong FROM json_each(?) AS words
CROSS JOIN shards CROSS JOIN frequent ON frequent.shard = shards.id AND frequent.term = words.value
CROSS JOIN lists ON lists.id = frequent.list
WHERE shards.stage = 3

-- rare --
SELECT places.value, shards.id, rare.words FROM json_each(?) AS places
CROSS JOIN shards CROSS JOIN rare ON rare.id = shards.id * 8192 + places.value WHERE shards.stage = 3

-- whole_list --
SELECT strong, rest FROM frequent CROSS JOIN lists ON lists.id = frequent.list WHERE shard = ? AND term = ?

-- rare_row --
SELECT words FROM rare WHERE id = ? * 8192 + ?

-- vocabulary --
-- In one walk, whatever is looked for: the walk is what takes the time.
SELECT term, doc FROM (SELECT term, doc FROM shard_{shard}_terms LIMIT ?) WHERE {one_of_them}
