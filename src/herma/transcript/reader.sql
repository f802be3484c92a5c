-- heads --
-- Messages and the sessions they are in, those of deleted sessions too: search counts what it leaves out.
SELECT m.id, s.id, m.role, m.timestamp, m.hidden,
       s.source, s.profile, s.project, s.user, s.chat, s.conversation, s.archived, s.deleted
  FROM messages m JOIN sessions s ON s.key = m.session
 WHERE m.id = ANY(:ids);

-- texts --
SELECT m.id, m.content, m.parts, m.tool_calls, m.tool_name
  FROM messages m
 WHERE m.id = ANY(:ids);

-- turns --
-- The two above in one.
SELECT m.id, s.id, m.role, m.timestamp, m.hidden,
       s.source, s.profile, s.project, s.user, s.chat, s.conversation, s.archived, s.deleted,
       m.content, m.parts, m.tool_calls, m.tool_name
  FROM messages m JOIN sessions s ON s.key = m.session
 WHERE m.id = ANY(:ids);

-- neighbours --
-- The nearest ones that were not rewound, by the index on (session, id).
SELECT m.id,
       (SELECT p.id FROM messages p WHERE p.session = m.session AND p.id < m.id AND p.hidden <> 'rewound'
         ORDER BY p.id DESC LIMIT 1),
       (SELECT n.id FROM messages n WHERE n.session = m.session AND n.id > m.id AND n.hidden <> 'rewound'
         ORDER BY n.id LIMIT 1)
  FROM messages m
 WHERE m.id = ANY(:ids);

-- until --
-- A message that may be shown and those before it, the last one first, each with the session they are in.
SELECT m.id, m.role, m.timestamp, m.content, m.parts, m.tool_calls, m.tool_call_id, m.tool_name, s.key, s.id
  FROM messages here CROSS JOIN sessions s ON s.key = here.session AND s.deleted IS NULL
       CROSS JOIN messages m ON m.session = here.session AND m.id <= here.id AND m.hidden <> 'rewound'
 WHERE here.id = ? AND here.hidden <> 'rewound' ORDER BY m.id DESC LIMIT ?;

-- shown --
-- How the following ones read a message.
SELECT m.id, m.role, m.timestamp, m.content, m.parts, m.tool_calls, m.tool_call_id, m.tool_name
  FROM messages m

-- following --
 WHERE m.session = ? AND m.id > ? AND m.hidden <> 'rewound' ORDER BY m.id LIMIT ?;

-- first_ones --
 WHERE m.session = ? AND m.id < ? AND m.hidden <> 'rewound'
   AND m.role IN ('user', 'assistant') AND (m.content <> '' OR m.parts IS NOT NULL)
 ORDER BY m.id LIMIT ?;

-- last_ones --
 WHERE m.session = ? AND m.id > ? AND m.hidden <> 'rewound'
   AND m.role IN ('user', 'assistant') AND (m.content <> '' OR m.parts IS NOT NULL)
 ORDER BY m.id DESC LIMIT ?;

-- key --
SELECT key FROM sessions WHERE id = ? AND deleted IS NULL;

-- newest --
SELECT id FROM messages ORDER BY id DESC LIMIT :limit;

-- kinds --
-- Where sessions come from. Far fewer than sessions.
SELECT DISTINCT source, profile, project, user, archived FROM sessions WHERE deleted IS NULL;

-- of_kinds [postgres] --
SELECT s.key, s.message_count
  FROM sessions s
 WHERE s.last_active >= :since AND s.started < :before AND s.deleted IS NULL
   AND (:any_session OR s.id = ANY(:sessions) OR s.conversation = ANY(:sessions))
   AND (s.source, s.profile, s.project, s.user, s.archived) IN (
        SELECT kind ->> 0, kind ->> 1, kind ->> 2, kind ->> 3, CAST(kind ->> 4 AS BOOLEAN)
          FROM json_array_elements(CAST(:kinds AS JSON)) kind)
 ORDER BY s.last_active DESC;

-- of_kinds [sqlite] --
-- Sessions from some of these that were active in a time, last active first.
SELECT s.key, s.message_count
  FROM sessions s INDEXED BY sessions_by_activity
 WHERE s.last_active >= :since AND s.started < :before AND s.deleted IS NULL
   AND (:any_session OR s.id = ANY(:sessions)
        OR s.conversation = ANY(:sessions))
   AND (s.source, s.profile, s.project, s.user, s.archived) IN (
        SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(:kinds))
 ORDER BY s.last_active DESC;

-- newest_of --
-- The newest messages of some sessions, by the index on session.
SELECT m.id FROM messages m
 WHERE m.session = ANY(:keys) AND m.hidden <> 'rewound'
   AND m.timestamp >= :since AND m.timestamp < :before
   AND (:any_role OR m.role = ANY(:roles))
 ORDER BY m.id DESC LIMIT :limit;

-- any_titled --
-- Whether any title contains a word: mostly none does, and then this is all.
SELECT 1 FROM sessions s INDEXED BY sessions_by_title
 WHERE s.title IS NOT NULL AND s.deleted IS NULL AND (instr(lower(s.title), :word)
        OR instr(replace(replace(lower(s.title), '-', ''), '_', ''), :name)) LIMIT 1;

-- titled [postgres] --
SELECT s.id, (SELECT min(m.id) FROM messages m WHERE m.session = s.key AND m.hidden <> 'rewound')
  FROM sessions s
 WHERE s.title IS NOT NULL AND s.deleted IS NULL
   AND NOT EXISTS (SELECT 1 FROM unnest(CAST(:words AS TEXT[])) word WHERE NOT instr(lower(s.title), word)
        AND NOT instr(replace(replace(lower(s.title), '-', ''), '_', ''), replace(replace(word, '-', ''), '_', '')))
 ORDER BY s.last_active DESC
 LIMIT :limit;

-- titled [sqlite] --
-- Sessions whose title contains every word, joined (ak47) or not (AK-47), and the first message of each.
-- Only titles are looked through, by their index.
SELECT s.id, (SELECT min(m.id) FROM messages m WHERE m.session = s.key AND m.hidden <> 'rewound')
  FROM sessions s INDEXED BY sessions_by_title
 WHERE s.title IS NOT NULL AND s.deleted IS NULL
   AND NOT EXISTS (SELECT 1 FROM json_each(:words) w WHERE instr(lower(s.title), w.value) = 0
        AND instr(replace(replace(lower(s.title), '-', ''), '_', ''), replace(replace(w.value, '-', ''), '_', '')) = 0)
 ORDER BY s.last_active DESC
 LIMIT :limit;

-- entitled --
-- Sessions of exactly these titles, by the index of titles.
SELECT s.id, (SELECT min(m.id) FROM messages m WHERE m.session = s.key AND m.hidden <> 'rewound')
  FROM sessions s INDEXED BY sessions_by_title
 WHERE s.title = ANY(:words) AND s.deleted IS NULL
 ORDER BY s.last_active DESC
 LIMIT :limit;

-- size --
SELECT count(*) FROM sessions;

-- version [postgres] --
-- Changes with every commit on the server.
SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS TEXT) AS BIGINT);

-- version [sqlite] --
-- Changes with every commit of another connection.
SELECT data_version FROM pragma_data_version;
