-- tables --
-- In the schema herma_index, if the server has the extension pgvector.
-- How far the feed was read: noticed is the change up to which what was purged is gone from here; appended: how many
-- messages came up to there. trouble, failures, retry_at: what an embedder last failed with. One row.
CREATE TABLE vector_state (
    id         INTEGER NOT NULL,
    store_id   TEXT NOT NULL,
    epoch      TEXT NOT NULL,
    noticed    INTEGER NOT NULL DEFAULT 0,
    appended   INTEGER NOT NULL DEFAULT 0,
    trouble_of TEXT NOT NULL DEFAULT '',
    trouble    TEXT NOT NULL DEFAULT '',
    failures   INTEGER NOT NULL DEFAULT 0,
    retry_at   REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (id)
) STRICT;
-- One row per model that is in use. low … walked: see `Reach`. versions: JSON, kind → version.
CREATE TABLE vector_models (
    id        INTEGER PRIMARY KEY,
    name      TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    used      REAL NOT NULL,
    low       INTEGER NOT NULL,
    high      INTEGER NOT NULL,
    low_part  INTEGER NOT NULL DEFAULT 0,
    high_part INTEGER NOT NULL DEFAULT 0,
    walked    INTEGER NOT NULL DEFAULT 0,
    vectors   INTEGER NOT NULL DEFAULT 0,
    versions  TEXT NOT NULL DEFAULT '{}',
    UNIQUE (name, dimension)
) STRICT;
-- One row per vector. key: of a message its id. vector: whole numbers from -127 to 127, or NULL where the embedder refuses
-- the text.
CREATE TABLE vectors (
    model   INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    key     TEXT NOT NULL,
    part    INTEGER NOT NULL,
    session TEXT NOT NULL,
    scope   TEXT NOT NULL,
    digest  INTEGER NOT NULL,
    vector  HALFVEC,
    PRIMARY KEY (model, kind, key, part)
) STRICT;
CREATE INDEX vectors_by_digest ON vectors (model, digest);

-- graph --
-- The messages of a model with so many numbers, for all tenants. Those of other sizes are compared one by one.
CREATE INDEX vectors_of_{dimension} ON vectors USING hnsw ((vector::halfvec({dimension})) halfvec_cosine_ops)
 WHERE kind = 'message' AND vector_dims(vector) = {dimension};

-- state --
SELECT store_id, epoch, noticed, appended, trouble_of, trouble, failures, retry_at,
       pg_total_relation_size('herma_index.vectors')
  FROM vector_state;

-- models --
SELECT id, name, dimension, low, high, low_part, high_part, walked, vectors, used, versions FROM vector_models ORDER BY id;

-- begin --
INSERT INTO vector_state (id, store_id, epoch) VALUES (1, :store_id, :epoch)
    ON CONFLICT (id) DO UPDATE SET store_id = excluded.store_id, epoch = excluded.epoch, noticed = 0, appended = 0
 WHERE (vector_state.store_id, vector_state.epoch) <> (excluded.store_id, excluded.epoch);

-- noticed --
UPDATE vector_state SET noticed = :noticed, appended = appended + :appended WHERE noticed = :since;

-- trouble --
UPDATE vector_state SET trouble_of = :model, trouble = :message, failures = :failures, retry_at = :retry_at;

-- walk_again --
UPDATE vector_models SET low = noticed, high = noticed, low_part = 0, high_part = 0, walked = 0, versions = '{}'
  FROM vector_state;

-- use --
-- A new model begins at the end of what is noticed: new messages first, then back to the oldest.
INSERT INTO vector_models (name, dimension, used, low, high)
SELECT CAST(:name AS TEXT), CAST(:dimension AS BIGINT), CAST(:at AS DOUBLE PRECISION), noticed, noticed FROM vector_state
    ON CONFLICT (name, dimension) DO UPDATE SET used = greatest(vector_models.used, excluded.used);

-- advance --
UPDATE vector_models
   SET low = :low, high = :high, low_part = :low_part, high_part = :high_part, walked = :walked WHERE id = :model;

-- count --
UPDATE vector_models SET vectors = vectors + :more WHERE id = :model;

-- set_versions --
UPDATE vector_models SET versions = :versions WHERE id = :model;

-- digests --
SELECT key, part, digest FROM vectors WHERE model = :model AND kind = :kind AND key = ANY(:keys);

-- all_digests --
SELECT key, part, digest FROM vectors WHERE model = :model AND kind = :kind;

-- known --
SELECT digest, vector::text FROM vectors WHERE model = :model AND digest = ANY(:digests);

-- add --
INSERT INTO vectors (model, kind, key, part, session, scope, digest, vector)
VALUES (:model, :kind, :key, :part, :session, :scope, :digest, :vector);

-- remove --
DELETE FROM vectors WHERE model = :model AND kind = :kind AND key = ANY(:keys);

-- some_of_model --
DELETE FROM vectors WHERE ctid = ANY(ARRAY(SELECT ctid FROM vectors WHERE model = :model LIMIT :limit));

-- model_itself --
DELETE FROM vector_models WHERE id = :model;

-- tune --
-- Look further than the nearest of all tenants, until there are enough of this one.
SELECT set_config('hnsw.ef_search', :most, TRUE), set_config('hnsw.iterative_scan', 'strict_order', TRUE);

-- near --
SELECT key, session, scope, 1 - (vector <=> CAST(:asked AS halfvec)) FROM vectors
 WHERE model = (SELECT id FROM vector_models WHERE name = :name AND dimension = {dimension})
   AND kind = 'message' AND vector_dims(vector) = {dimension}
 ORDER BY vector::halfvec({dimension}) <=> CAST(:asked AS halfvec({dimension})) LIMIT :most;

-- apart --
SELECT key, session, 1 - (vector <=> CAST(:query AS halfvec)), 1 - (vector <=> CAST(:mean AS halfvec)) FROM vectors
 WHERE model = (SELECT id FROM vector_models WHERE name = :name AND dimension = {dimension})
   AND kind = 'message' AND vector_dims(vector) = {dimension}
 ORDER BY vector::halfvec({dimension}) <=> CAST(:asked AS halfvec({dimension})) LIMIT :most;

-- near_of --
SELECT key, session, scope, 1 - (vector <=> CAST(:asked AS halfvec)) FROM vectors
 WHERE model = (SELECT id FROM vector_models WHERE name = :name AND dimension = {dimension})
   AND kind = :kind AND vector_dims(vector) = {dimension}
   AND (:keys IS NULL OR key = ANY(:keys)) AND (:scopes IS NULL OR scope = ANY(:scopes))
 ORDER BY vector <=> CAST(:asked AS halfvec) LIMIT :most;

-- sample --
-- Digests are in no order that means anything.
SELECT vector::text FROM vectors WHERE model = (SELECT id FROM vector_models WHERE name = :name AND dimension = {dimension})
   AND vector_dims(vector) = {dimension} AND kind = 'message'
 ORDER BY digest LIMIT :limit;

-- cosines --
SELECT key, 1 - (vector <=> CAST(:asked AS halfvec)) FROM vectors
 WHERE model = (SELECT id FROM vector_models WHERE name = :name AND dimension = {dimension})
   AND kind = 'message' AND key = ANY(:keys) AND vector_dims(vector) = {dimension};
