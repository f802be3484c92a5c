-- schema --
SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%' ORDER BY type, name;

-- identity --
SELECT (SELECT value FROM meta WHERE key = 'store_id'), (SELECT value FROM meta WHERE key = 'epoch'),
       coalesce((SELECT max(seq) FROM changes), 0);

-- counts --
SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM messages), (SELECT count(*) FROM curated_changes),
       (SELECT count(*) FROM payloads);

-- feed --
-- Rows, the number of the last, and how many messages they leave; beside how many there are.
SELECT count(*), coalesce(max(seq), 0), coalesce(sum(iif(gone, -count, count)), 0), (SELECT count(*) FROM messages)
  FROM changes;

-- unfed --
-- Messages that no row of the feed mentions, the newest first: an index would never see them.
SELECT m.id FROM messages m
 WHERE m.id > (SELECT coalesce(max(first_id + count - 1), 0) FROM changes WHERE NOT gone)
 LIMIT 1;

-- parents --
SELECT id, parent FROM sessions WHERE parent IS NOT NULL;

-- ids --
SELECT id FROM sessions;

-- inbox --
SELECT count(*), min(expires) FROM curated_inbox WHERE decision IS NULL AND expires > :now;

-- newest_payloads --
SELECT id, hash, codec, data FROM payloads WHERE id < :before ORDER BY id DESC LIMIT 50;

-- in_pieces --
SELECT id, content, parts, tool_calls, reasoning, sent, sent_parts, extra
  FROM messages
 WHERE id < :before
   AND 'blob' IN (typeof(content), typeof(parts), typeof(tool_calls), typeof(reasoning), typeof(sent),
                  typeof(sent_parts), typeof(extra))
 ORDER BY id DESC LIMIT 200;

-- payload_there --
SELECT 1 FROM payloads WHERE id = ?;

-- texts --
-- Every table, with its columns that hold text.
SELECT m.name, group_concat(c.name, ',')
  FROM sqlite_master m JOIN pragma_table_info(m.name) c
 WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' AND c.type IN ('TEXT', 'ANY')
 GROUP BY m.name;
