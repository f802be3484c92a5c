-- identity --
SELECT (SELECT value FROM meta WHERE key = 'store_id'), (SELECT value FROM meta WHERE key = 'epoch'),
       coalesce((SELECT max(seq) FROM changes), 0);

-- since --
SELECT seq, gone, first_id, count FROM changes WHERE seq > :seq ORDER BY seq LIMIT :limit;

-- searchable --
SELECT m.id, s.id, m.role, m.timestamp, m.content, m.parts, m.tool_calls, m.tool_name
  FROM messages m JOIN sessions s ON s.key = m.session
 WHERE m.id = ANY(:ids)
 ORDER BY m.id;

-- large --
-- Messages with a text of more bytes than this. Text that large is never kept in its row.
SELECT DISTINCT payload_uses.message
  FROM payloads JOIN payload_uses ON payload_uses.payload = payloads.id
 WHERE payloads.size > :bytes AND payloads.kind = 'text';

-- message_count --
-- Appended less gone: the feed knows, without counting rows.
SELECT coalesce(sum(CASE WHEN gone THEN -count ELSE count END), 0) FROM changes;
