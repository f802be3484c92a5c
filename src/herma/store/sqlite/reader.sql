-- heads --
-- Messages of deleted sessions too: search counts what it leaves out.
SELECT m.id, s.id, m.role, m.timestamp, m.hidden
  FROM messages m JOIN sessions s ON s.key = m.session
 WHERE m.id IN (SELECT value FROM json_each(:ids));

-- texts --
SELECT m.id, m.content, m.parts, m.tool_calls, m.tool_name
  FROM messages m
 WHERE m.id IN (SELECT value FROM json_each(:ids));

-- neighbours --
-- The nearest ones that were not rewound, by the index on (session, id).
SELECT m.id,
       (SELECT p.id FROM messages p WHERE p.session = m.session AND p.id < m.id AND p.hidden <> 'rewound'
         ORDER BY p.id DESC LIMIT 1),
       (SELECT n.id FROM messages n WHERE n.session = m.session AND n.id > m.id AND n.hidden <> 'rewound'
         ORDER BY n.id LIMIT 1)
  FROM messages m
 WHERE m.id IN (SELECT value FROM json_each(:ids));

-- windows --
-- Each message with its neighbours on either side, as far as they are shown.
SELECT a.id, m.id, s.id, m.role, m.timestamp, m.content, m.parts, m.tool_calls, m.tool_call_id, m.tool_name, m.hidden
  FROM messages a JOIN sessions s ON s.key = a.session
 CROSS JOIN messages m ON m.id IN (
       SELECT id FROM (SELECT p.id FROM messages p
        WHERE p.session = a.session AND p.id < a.id AND p.hidden <> 'rewound' ORDER BY p.id DESC LIMIT :window)
        UNION ALL
       SELECT id FROM (SELECT n.id FROM messages n
        WHERE n.session = a.session AND n.id >= a.id AND n.hidden <> 'rewound' ORDER BY n.id LIMIT :window + 1))
 WHERE a.id IN (SELECT value FROM json_each(:ids)) AND a.hidden <> 'rewound' AND s.deleted IS NULL
 ORDER BY m.id;

-- edges --
-- For each of [session, before, after]: the first messages before one id, or the last after another.
SELECT e.key, m.id, s.id, m.role, m.timestamp, m.content, m.parts, m.tool_calls, m.tool_call_id, m.tool_name, m.hidden
  FROM json_each(:edges) e JOIN sessions s ON s.id = e.value ->> 0 AND s.deleted IS NULL
 CROSS JOIN messages m ON m.id IN (
       SELECT id FROM (SELECT f.id FROM messages f
        WHERE f.session = s.key AND f.id < e.value ->> 1 AND f.hidden <> 'rewound'
          AND f.role IN ('user', 'assistant') AND (f.content <> '' OR f.parts IS NOT NULL)
        ORDER BY f.id LIMIT :count)
        UNION ALL
       SELECT id FROM (SELECT l.id FROM messages l
        WHERE l.session = s.key AND l.id > e.value ->> 2 AND l.hidden <> 'rewound'
          AND l.role IN ('user', 'assistant') AND (l.content <> '' OR l.parts IS NOT NULL)
        ORDER BY l.id DESC LIMIT :count))
 ORDER BY m.id;

-- newest --
SELECT id FROM messages ORDER BY id DESC LIMIT :limit;

-- titled --
-- Sessions whose title contains every word, and the first message of each. Only titles are looked through, by their index.
SELECT s.id, (SELECT min(m.id) FROM messages m WHERE m.session = s.key AND m.hidden <> 'rewound')
  FROM sessions s INDEXED BY sessions_by_title
 WHERE s.title IS NOT NULL AND s.deleted IS NULL
   AND NOT EXISTS (SELECT 1 FROM json_each(:words) w WHERE instr(lower(s.title), w.value) = 0)
 ORDER BY s.last_active DESC
 LIMIT :limit;

-- size --
SELECT count(*) FROM sessions;
