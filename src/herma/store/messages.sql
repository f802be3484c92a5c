-- key --
SELECT key FROM sessions WHERE id = :id AND (deleted IS NULL OR :deleted);

-- insert --
INSERT INTO messages
       (session, role, timestamp, content, parts, tool_calls, tool_call_id, tool_name, reasoning, sent, sent_parts, told,
        tokens, finish_reason, hidden, extra)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- count_in --
-- A session is as old as its oldest message and as active as its newest.
UPDATE sessions
   SET message_count = message_count + :messages,
       tool_call_count = tool_call_count + :calls,
       started = min(started, :oldest),
       last_active = CASE WHEN EXISTS (SELECT 1 FROM messages WHERE session = :key AND id < :first)
                          THEN max(last_active, :newest) ELSE :newest END,
       preview = iif(preview = '', :preview, preview)
 WHERE key = :key;

-- change --
INSERT INTO changes (gone, first_id, count) VALUES (0, :first, :count);

-- columns --
-- How every query here reads a message.
SELECT m.id, s.id, m.role, m.timestamp, m.content, m.parts, m.tool_calls, m.tool_call_id, m.tool_name, m.reasoning,
       m.sent, m.sent_parts, m.told, m.tokens, m.finish_reason, m.hidden, m.extra
  FROM messages m JOIN sessions s ON s.key = m.session

-- of_session --
 WHERE m.session = (SELECT key FROM sessions WHERE id = :id AND deleted IS NULL)
   AND (:hidden OR m.hidden = '') AND m.id > :after
 ORDER BY m.id
 LIMIT :limit;

-- by_ids --
 WHERE m.id IN (SELECT value FROM json_each(:ids)) AND s.deleted IS NULL
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
   AND m.hidden <> 'rewound' AND m.role IN (SELECT value FROM json_each(:roles))
   AND (m.content <> '' OR m.parts IS NOT NULL)
 ORDER BY m.id LIMIT :count;

-- last_ones --
 WHERE m.session = (SELECT key FROM sessions WHERE id = :id AND deleted IS NULL) AND m.id > :after
   AND m.hidden <> 'rewound' AND m.role IN (SELECT value FROM json_each(:roles))
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
SELECT count(*)
  FROM messages m
 WHERE m.hidden <> '' AND EXISTS (SELECT 1 FROM sessions s WHERE s.key = m.session AND s.deleted IS NULL);

-- payload_totals --
SELECT count(*), coalesce(sum(length(data)), 0), coalesce(sum(size), 0) FROM payloads;
