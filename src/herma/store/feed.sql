-- identity --
SELECT (SELECT value FROM meta WHERE key = 'store_id'), (SELECT value FROM meta WHERE key = 'epoch'),
       coalesce((SELECT max(seq) FROM changes), 0);

-- since --
SELECT seq, gone, first_id, count FROM changes WHERE seq > :seq ORDER BY seq LIMIT :limit;

-- searchable --
SELECT m.id, s.id, m.role, m.timestamp, m.content, m.parts, m.tool_calls, m.tool_name
  FROM messages m JOIN sessions s ON s.key = m.session
 WHERE m.id IN (SELECT value FROM json_each(:ids))
 ORDER BY m.id;

-- message_count --
-- Appended less gone: the feed knows, without counting rows.
SELECT coalesce(sum(iif(gone, -count, count)), 0) FROM changes;
