-- tables --
-- In the schema herma_index: all of it is derived, and is made again when it is missing. A build is one index of a
-- tenant's messages: the one in use (published), or one that takes its place. No seq: nothing was indexed yet.
CREATE TABLE builds (
    id        INTEGER NOT NULL,
    format    INTEGER NOT NULL,
    store_id  TEXT,
    epoch     TEXT,
    seq       INTEGER,
    published INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (id)
) STRICT;
-- So many consecutive ids are a shard; words: of all its messages together. stage 0: its words are in `postings`; 1: in
-- `lists`, which are to be made again, because messages went and the average length changed; 3: in `lists`.
CREATE TABLE shards (
    build    INTEGER NOT NULL,
    id       INTEGER NOT NULL,
    messages INTEGER NOT NULL DEFAULT 0,
    words    INTEGER NOT NULL DEFAULT 0,
    stage    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (build, id)
) STRICT;
-- Every indexed message: the digest of its text, how many words it has, and where.
CREATE TABLE texts (
    build   INTEGER NOT NULL,
    id      INTEGER NOT NULL,
    digest  INTEGER NOT NULL,
    length  INTEGER NOT NULL,
    words   TSVECTOR NOT NULL,
    PRIMARY KEY (build, id)
) STRICT;
-- Which words are how often in a message of a shard that is still filling.
CREATE TABLE postings (
    build  INTEGER NOT NULL,
    term   TEXT NOT NULL,
    id     INTEGER NOT NULL,
    length INTEGER NOT NULL,
    times  INTEGER NOT NULL,
    PRIMARY KEY (build, term, id)
) STRICT;
-- In which messages of a full shard a word is, the ones it weighs most in first. rest: what a long list has more.
CREATE TABLE lists (
    build    INTEGER NOT NULL,
    term     TEXT NOT NULL,
    shard    INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    strong   BLOB NOT NULL,
    rest     BLOB,
    PRIMARY KEY (build, term, shard)
) STRICT;
CREATE INDEX lists_by_shard ON lists (build, shard);

-- published --
SELECT max(id) FROM builds WHERE published = 1 AND format = :format;

-- unpublished --
SELECT max(id) FROM builds WHERE published = 0 AND format = :format;

-- new_build --
INSERT INTO builds (id, format) SELECT coalesce(max(id), 0) + 1, :format FROM builds RETURNING id;

-- position --
SELECT store_id, epoch, seq FROM builds WHERE id = :build;

-- advance --
UPDATE builds SET store_id = :store_id, epoch = :epoch, seq = :seq WHERE id = :build;

-- publish --
UPDATE builds SET published = 1 WHERE id = :build;

-- others --
SELECT id FROM builds WHERE id <> :build AND (published = 1 OR format <> :format);

-- drop_texts --
DELETE FROM texts WHERE build = :build;

-- drop_lists --
DELETE FROM lists WHERE build = :build;

-- drop_postings --
DELETE FROM postings WHERE build = :build;

-- drop_shards --
DELETE FROM shards WHERE build = :build;

-- drop_build --
DELETE FROM builds WHERE id = :build;

-- count --
SELECT coalesce(sum(messages), 0) FROM shards WHERE build = :build;

-- bytes --
-- Of all tenants together: sizes of rows would have to be read one by one.
SELECT sum(pg_total_relation_size(oid)) FROM pg_class
 WHERE relnamespace = CAST('herma_index' AS regnamespace) AND relname IN ('texts', 'lists', 'postings');

-- shards --
SELECT id, messages, words, stage FROM shards WHERE build = :build AND messages > 0 ORDER BY id DESC;

-- known --
SELECT id, digest, length FROM texts WHERE build = :build AND id = ANY(:ids);

-- words_of --
SELECT DISTINCT one.id / :size, word.lexeme FROM texts one CROSS JOIN LATERAL unnest(one.words) AS word
 WHERE one.build = :build AND one.id = ANY(:ids);

-- remove_postings --
DELETE FROM postings USING texts one CROSS JOIN LATERAL unnest(one.words) AS word
 WHERE one.build = :build AND one.id = ANY(:ids)
   AND postings.build = :build AND postings.term = word.lexeme AND postings.id = one.id;

-- remove --
DELETE FROM texts WHERE build = :build AND id = ANY(:ids);

-- add --
INSERT INTO texts (build, id, digest, length, words)
SELECT CAST(:build AS bigint), given.*
  FROM unnest(CAST(:ids AS bigint[]), CAST(:digests AS bigint[]), CAST(:lengths AS bigint[]),
              CAST(:words AS tsvector[])) AS given;

-- add_postings --
INSERT INTO postings (build, term, id, length, times)
SELECT one.build, word.lexeme, one.id, one.length, cardinality(word.positions)
  FROM texts one CROSS JOIN LATERAL unnest(one.words) AS word
 WHERE one.build = :build AND one.id BETWEEN :first AND :last AND (:ids IS NULL OR one.id = ANY(:ids))
    ON CONFLICT (build, term, id) DO NOTHING;

-- changed --
INSERT INTO shards (build, id, messages, words) VALUES (:build, :shard, :messages, :words)
    ON CONFLICT (build, id) DO UPDATE SET messages = shards.messages + excluded.messages,
        words = shards.words + excluded.words
RETURNING stage, messages, words;

-- set_stage --
UPDATE shards SET stage = :stage WHERE build = :build AND id = :shard;

-- unlist --
DELETE FROM lists WHERE build = :build AND shard = :shard AND (:terms IS NULL OR term = ANY(:terms));

-- unlisted --
-- The oldest shard without lists; the newest one is still filling.
SELECT id, messages, words FROM shards
 WHERE build = :build AND stage < 3 AND id < (SELECT max(id) FROM shards WHERE build = :build) ORDER BY id LIMIT 1;

-- terms --
-- Every word of a shard, and where it is how often; `terms`: only these.
SELECT word.lexeme, array_agg(one.id), array_agg(cardinality(word.positions))
  FROM texts one CROSS JOIN LATERAL unnest(one.words) AS word
 WHERE one.build = :build AND one.id BETWEEN :first AND :last AND (:terms IS NULL OR word.lexeme = ANY(:terms))
 GROUP BY word.lexeme;

-- clear_postings --
DELETE FROM postings WHERE build = :build AND id BETWEEN :first AND :last;

-- lengths --
SELECT id, length FROM texts WHERE build = :build AND id BETWEEN :first AND :last;

-- add_lists --
INSERT INTO lists (build, shard, term, messages, strong, rest)
SELECT CAST(:build AS bigint), CAST(:shard AS bigint), given.*
  FROM unnest(CAST(:terms AS text[]), CAST(:messages AS bigint[]), CAST(:strong AS bytea[]), CAST(:rest AS bytea[])) given;

-- lists --
SELECT term, shard, messages, strong FROM lists WHERE build = :build AND term = ANY(:terms);

-- whole_list --
SELECT strong, rest FROM lists WHERE build = :build AND term = :term AND shard = :shard;

-- postings --
SELECT term, id / :size, array_agg(id), array_agg(length), array_agg(times) FROM postings
 WHERE build = :build AND term = ANY(:terms) GROUP BY 1, 2;

-- matching --
SELECT id, length FROM texts WHERE build = :build AND id BETWEEN :first AND :last AND words @@ CAST(:asked AS tsquery)
 ORDER BY id DESC LIMIT :most;

-- matching_of --
SELECT id, length FROM texts WHERE build = :build AND id = ANY(:ids) AND words @@ CAST(:asked AS tsquery)
 ORDER BY id DESC LIMIT :most;

-- times --
-- How often these words are in these messages.
SELECT one.id, one.length, word.lexeme, cardinality(word.positions)
  FROM texts one CROSS JOIN LATERAL unnest(one.words) AS word
 WHERE one.build = :build AND one.id = ANY(:ids) AND word.lexeme = ANY(:terms);

-- places --
-- Where these words, and those that begin so, are in messages.
SELECT one.id, word.lexeme, word.positions
  FROM texts one CROSS JOIN LATERAL unnest(one.words) AS word
 WHERE one.build = :build AND one.id = ANY(:ids)
   AND (word.lexeme = ANY(:terms) OR starts_with(word.lexeme, CAST(:beginning AS text)));

-- vocabulary --
SELECT term, sum(messages) FROM lists
 WHERE build = :build AND shard = ANY(:shards)
   AND EXISTS (SELECT 1 FROM unnest(CAST(:parts AS text[])) part WHERE strpos(term, part) > 0
               UNION ALL SELECT 1 FROM unnest(CAST(:beginnings AS text[])) part WHERE starts_with(term, part))
 GROUP BY term ORDER BY 2 DESC, 1 LIMIT :limit;

-- vocabulary_of_texts --
SELECT word.lexeme, count(*) FROM texts one CROSS JOIN LATERAL unnest(one.words) AS word
 WHERE one.build = :build AND one.id BETWEEN :first AND :last
   AND EXISTS (SELECT 1 FROM unnest(CAST(:parts AS text[])) part WHERE strpos(word.lexeme, part) > 0
               UNION ALL SELECT 1 FROM unnest(CAST(:beginnings AS text[])) part WHERE starts_with(word.lexeme, part))
 GROUP BY word.lexeme ORDER BY 2 DESC, 1 LIMIT :limit;

-- differing --
-- Messages of these that are stored otherwise than these words.
SELECT one.id FROM texts one JOIN unnest(CAST(:ids AS bigint[]), CAST(:words AS tsvector[])) AS given (id, words)
    ON one.id = given.id
 WHERE one.build = :build AND one.words <> given.words LIMIT 1;

-- after --
SELECT id, digest FROM texts WHERE build = :build AND id > :after ORDER BY id LIMIT :limit;

-- drop_shard --
DELETE FROM shards WHERE build = :build AND id = :shard;

-- listed_words --
-- How many words the messages of each shard have, and how many its lists.
SELECT shard, sum(messages) FROM lists WHERE build = :build GROUP BY shard;

-- stored_words --
SELECT sum(cardinality(tsvector_to_array(words))) FROM texts WHERE build = :build AND id BETWEEN :first AND :last;
