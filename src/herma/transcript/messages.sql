-- key --
SELECT key FROM sessions WHERE id = :id AND (deleted IS NULL OR :deleted);

-- insert --
INSERT INTO messages
       (session, role, timestamp, content, parts, tool_calls, tool_call_id, tool_name, reasoning, sent, sent_parts, told,
        tokens, finish_reason, hidden, extra, outside)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
RETURNING id;

-- count_in --
-- A session is as old as its oldest message and as active as its newest.
UPDATE sessions
   SET message_count = message_count + :messages,
       tool_call_count = tool_call_count + :calls,
       started = min(started, :oldest),
       last_active = CASE WHEN EXISTS (SELECT 1 FROM messages WHERE session = :key AND id < :first)
                          THEN max(last_active, :newest) ELSE :newest END,
       preview = CASE WHEN preview = '' THEN :preview ELSE preview END
 WHERE key = :key;

-- change --
INSERT INTO changes (gone, first_id, count) VALUES (FALSE, :first, :count);

-- columns --
-- How every query here reads a message.
SELECT m.id, s.id, m.role, m.timestamp, m.content, m.parts, m.tool_calls, m.tool_call_id, m.tool_name, m.reasoning,
       m.sent, m.sent_parts, m.told, m.tokens, m.finish_reason, m.hidden, m.extra, m.outside
  FROM messages m JOIN sessions s ON s.key = m.session

-- of_session --
 WHERE m.session = (SELECT key FROM sessions WHERE id = :id AND deleted IS NULL)
   AND (:hidden OR m.hidden = '') AND m.id > :after
 ORDER BY m.id
 LIMIT :limit;

-- by_ids --
 WHERE m.id = ANY(:ids) AND s.deleted IS NULL
 ORDER BY m.id;

-- session_of --
SELECT m.session
  FROM messages m JOIN sessions s ON s.key = m.session
 WHERE m.id = :id AND s.deleted IS NULL AND m.hidden <> 'rewound';

-- before --
 WHERE m.session = :key AND m.id < :id AND m.hidden <> 'rewound' ORDER BY m.id DESC LIMIT :limit;

-- from --
 WHERE m.session = :key AND m.id >= :id AND m.hidden <> 'rewound' ORDER BY m.id LIMIT :limit;

-- first_ones --
 WHERE m.session = (SELECT key FROM sessions WHERE id = :id AND deleted IS NULL) AND m.id < :before
   AND m.hidden <> 'rewound' AND m.role = ANY(:roles)
   AND (m.content <> '' OR m.parts IS NOT NULL)
 ORDER BY m.id LIMIT :count;

-- last_ones --
 WHERE m.session = (SELECT key FROM sessions WHERE id = :id AND deleted IS NULL) AND m.id > :after
   AND m.hidden <> 'rewound' AND m.role = ANY(:roles)
   AND (m.content <> '' OR m.parts IS NOT NULL)
 ORDER BY m.id DESC LIMIT :count;

-- hide --
UPDATE messages SET hidden = :new
 WHERE session = :key AND id BETWEEN :first AND :last AND hidden = :old;

-- recount --
UPDATE sessions
   SET message_count = (SELECT count(*) FROM messages WHERE session = :key AND hidden = '')
 WHERE key = :key;

-- totals --
SELECT count(*), count(DISTINCT conversation), coalesce(sum(message_count), 0), coalesce(sum(archived), 0),
       coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0), coalesce(sum(cache_read_tokens), 0),
       coalesce(sum(cache_write_tokens), 0), coalesce(sum(reasoning_tokens), 0), coalesce(sum(cost_usd), 0.0),
       min(started), max(last_active)
  FROM sessions
 WHERE deleted IS NULL;

-- by_source --
SELECT source, count(*), sum(message_count) FROM sessions WHERE deleted IS NULL GROUP BY source ORDER BY source;

-- waiting --
SELECT count(*) FROM sessions WHERE deleted IS NOT NULL;

-- hidden_messages --
-- Counted by the index on session and the counts of visible ones: no message is read.
SELECT (SELECT count(*) FROM messages)
     - (SELECT count(*) FROM messages WHERE session IN (SELECT key FROM sessions WHERE deleted IS NOT NULL))
     - (SELECT coalesce(sum(message_count), 0) FROM sessions WHERE deleted IS NULL);

-- largest --
-- The bytes of text in every conversation, the largest first, and those of all of them together. One pass over messages,
-- of which the headers of values are read; the expression for the length of a value is put in.
WITH sized AS MATERIALIZED (SELECT m.session, sum({bytes}) AS bytes FROM messages m GROUP BY m.session)
SELECT s.conversation, sum(z.bytes), sum(sum(z.bytes)) OVER ()
  FROM sessions s JOIN sized z ON z.session = s.key
 WHERE s.deleted IS NULL
 GROUP BY s.conversation
 ORDER BY sum(z.bytes) DESC, max(s.last_active) DESC
 LIMIT :limit;

-- bytes [sqlite] --
-- The length of a stored text: of the pieces of one that was taken apart.
CASE typeof({column}) WHEN 'blob'
  THEN (SELECT sum(CASE e.type WHEN 'integer' THEN (SELECT p.size FROM payloads p WHERE p.id = e.value)
                   ELSE octet_length(e.value) END) FROM json_each(CAST({column} AS TEXT)) e)
  ELSE coalesce(octet_length({column}), 0) END

-- bytes [postgres] --
-- The same, in which a payload counts once for each message that uses it.
coalesce(octet_length({column}), 0) + CASE WHEN starts_with({column}, chr(1))
  THEN (SELECT coalesce(sum(p.size), 0) FROM payload_uses u JOIN payloads p ON p.id = u.payload WHERE u.message = m.id)
  ELSE 0 END

-- payload_totals --
SELECT count(*), coalesce(sum(length(data)), 0), coalesce(sum(size), 0) FROM payloads;

-- file_bytes [sqlite] --
SELECT page_count * page_size FROM pragma_page_count, pragma_page_size;

-- file_bytes [postgres] --
-- Of the whole database: its tables are shared by all tenants.
SELECT pg_database_size(current_database());

-- find_payload --
SELECT id FROM payloads WHERE hash = ?;

-- add_payload --
INSERT INTO payloads (hash, size, kind, codec, data) VALUES (?, ?, ?, ?, ?) RETURNING id;

-- use --
INSERT INTO payload_uses (payload, message) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- payloads --
-- Large texts, each with the hash that they must have.
SELECT id, codec, data, hash FROM payloads WHERE id = ANY(:ids);

-- payloads_of_prose [postgres] --
SELECT id, CASE kind WHEN 'base64' THEN 'plain' ELSE codec END, CASE kind WHEN 'base64' THEN CAST(' ' AS BYTEA) ELSE data END,
       CASE kind WHEN 'base64' THEN NULL ELSE hash END
  FROM payloads
 WHERE id = ANY(:ids);

-- payloads_of_prose [sqlite] --
-- The same for search, with a space for each run of base64, in which no one would search.
SELECT id, iif(kind = 'base64', 'plain', codec), iif(kind = 'base64', x'20', data), iif(kind = 'base64', NULL, hash)
  FROM payloads
 WHERE id = ANY(:ids);
