-- base --
-- Everything lies in this schema. The format of all rows, and the oldest format whose release can still use them.
CREATE SCHEMA IF NOT EXISTS herma;
SET LOCAL search_path = herma;
CREATE TABLE format (version BIGINT NOT NULL, compatible BIGINT NOT NULL);

-- Names that SQLite has for what PostgreSQL calls otherwise, so that a statement is written once.
CREATE FUNCTION min(anycompatible, anycompatible) RETURNS anycompatible IMMUTABLE PARALLEL SAFE LANGUAGE sql
    AS 'SELECT least($1, $2)';
CREATE FUNCTION max(anycompatible, anycompatible) RETURNS anycompatible IMMUTABLE PARALLEL SAFE LANGUAGE sql
    AS 'SELECT greatest($1, $2)';
CREATE FUNCTION instr(text, text) RETURNS boolean IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN strpos($1, $2) > 0;
CREATE FUNCTION add_true(bigint, boolean) RETURNS bigint IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN $2 IS NULL THEN $1 ELSE coalesce($1, 0) + CAST($2 AS INTEGER) END;
CREATE AGGREGATE sum(boolean) (SFUNC = add_true, STYPE = bigint);

-- has --
-- Whether the tables of the index and of vectors are there, and the schema of the extension pgvector, if it is installed
-- and new enough (0.8 can search on for the rows of a tenant).
SELECT to_regclass('herma_index.builds') IS NOT NULL, to_regclass('herma_index.vectors') IS NOT NULL,
       (SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace
         WHERE extname = 'vector' AND (string_to_array(extversion, '.'))[1:2]::INTEGER[] >= '{0,8}');

-- index_base --
-- What is derived lies in a schema of its own, which no dump needs.
CREATE SCHEMA IF NOT EXISTS herma_index;
SET LOCAL search_path = herma_index, herma;

-- tables --
-- The last number given to a row of a table. Each tenant has its own: a tenant's numbers rise in the order of its
-- commits and have no gaps, because one writer of a tenant works at a time.
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    last INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- skill_files --
-- The files of all skills, below skills/. hash: '' of one that was removed. seq rises with every change.
CREATE TABLE skill_files (
    path       TEXT PRIMARY KEY,
    hash       TEXT NOT NULL,
    executable INTEGER NOT NULL CHECK (executable IN (0, 1)),
    data       BLOB,
    seq        INTEGER NOT NULL
) STRICT;
CREATE INDEX skill_files_by_seq ON skill_files (seq);

-- next_id --
CREATE FUNCTION next_id(text) RETURNS bigint VOLATILE LANGUAGE sql
    BEGIN ATOMIC
        INSERT INTO counters (name, last) VALUES ($1, 1)
            ON CONFLICT (tenant, name) DO UPDATE SET last = counters.last + 1
        RETURNING last;
    END;

-- guard --
-- Only rows of the connection's tenant exist for it, whatever a statement says; the owner of the table is bound too.
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON {table}
    USING (tenant = current_setting('herma.tenant')) WITH CHECK (tenant = current_setting('herma.tenant'));

-- greet --
-- Set a new connection up, and say what it is connected to.
SELECT set_config('search_path', concat_ws(', ', 'herma, herma_index', (SELECT quote_ident(nspname)
           FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'vector')), FALSE),
       set_config('herma.tenant', $1, FALSE),
       set_config('lock_timeout', $2, FALSE),
       CASE WHEN current_setting('statement_timeout') = '0' THEN set_config('statement_timeout', $3, FALSE) END,
       set_config('idle_in_transaction_session_timeout', $4, FALSE),
       current_setting('server_version_num'),
       (SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user),
       to_regclass('herma.format') IS NOT NULL, to_regclass('herma_index.builds') IS NOT NULL,
       to_regclass('herma_index.vectors') IS NOT NULL;

-- format --
SELECT version, compatible FROM format;

-- begin --
-- One writer of a tenant at a time. Its number says later whether it was committed.
BEGIN; SELECT pg_advisory_xact_lock({key}); SELECT pg_current_xact_id();

-- settled --
SELECT pg_xact_status(CAST($1 AS xid8));

-- try_lock --
SELECT pg_try_advisory_lock($1);

-- unlock --
SELECT pg_advisory_unlock($1);

-- tenants --
INSERT INTO meta (key, value) VALUES ('store_id', $1), ('epoch', $2), ('created', $3) ON CONFLICT DO NOTHING;

-- store_id --
SELECT value FROM meta WHERE key = 'store_id';

-- copying --
SELECT 1 FROM meta WHERE key = 'copying';

-- tables_of_tenant --
SELECT schemaname || '.' || tablename FROM pg_tables
 WHERE schemaname IN ('herma', 'herma_index') AND tablename <> 'format';
