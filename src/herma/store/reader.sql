-- heads --
-- Messages and the sessions they are in, those of deleted sessions too: search counts what it leaves out.
SELECT m.id, s.id, m.role, m.timestamp, m.hidden,
       s.source, s.profile, s.project, s.user, s.chat, s.conversation, s.archived, s.deleted
  FROM messages m JOIN sessions s ON s.key = m.session
 WHERE m.id IN (SELECT value FROM json_each(:ids));

-- texts --
SELECT m.id, m.content, m.parts, m.tool_calls, m.tool_name
  FROM messages m
 WHERE m.id IN (SELECT value FROM json_each(:ids));

-- turns --
-- The two above in one.
SELECT m.id, s.id, m.role, m.timestamp, m.hidden,
       s.source, s.profile, s.project, s.user, s.chat, s.conversation, s.archived, s.deleted,
       m.content, m.parts, m.tool_calls, m.tool_name
  FROM messages m JOIN sessions s ON s.key = m.session
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

-- of_kinds --
-- Sessions from some of these that were active in a time, last active first.
SELECT s.key, s.message_count
  FROM sessions s INDEXED BY sessions_by_activity
 WHERE s.last_active >= :since AND s.started < :before AND s.deleted IS NULL
   AND (:sessions = '[]' OR s.id IN (SELECT value FROM json_each(:sessions))
        OR s.conversation IN (SELECT value FROM json_each(:sessions)))
   AND (s.source, s.profile, s.project, s.user, s.archived) IN (
        SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(:kinds))
 ORDER BY s.last_active DESC;

-- newest_of --
-- The newest messages of some sessions, by the index on session.
SELECT m.id FROM messages m
 WHERE m.session IN (SELECT value FROM json_each(:keys)) AND m.hidden <> 'rewound'
   AND m.timestamp >= :since AND m.timestamp < :before
   AND (:roles = '[]' OR m.role IN (SELECT value FROM json_each(:roles)))
 ORDER BY m.id DESC LIMIT :limit;

-- any_titled --
-- Whether any title contains a word: mostly none does, and then this is all.
SELECT 1 FROM sessions s INDEXED BY sessions_by_title
 WHERE s.title IS NOT NULL AND s.deleted IS NULL AND instr(lower(s.title), :word) > 0 LIMIT 1;

-- titled --
-- Sessions whose title contains every word, and the first message of each. Only titles are looked through, by their index.
SELECT s.id, (SELECT min(m.id) FROM messages m WHERE m.session = s.key AND m.hidden <> 'rewound')
  FROM sessions s INDEXED BY sessions_by_title
 WHERE s.title IS NOT NULL AND s.deleted IS NULL
   AND NOT EXISTS (SELECT 1 FROM json_each(:words) w WHERE instr(lower(s.title), w.value) = 0)
 ORDER BY s.last_active DESC
 LIMIT :limit;

-- entitled --
-- Sessions of exactly these titles, by the index of titles.
SELECT s.id, (SELECT min(m.id) FROM messages m WHERE m.session = s.key AND m.hidden <> 'rewound')
  FROM sessions s INDEXED BY sessions_by_title
 WHERE s.title IN (SELECT value FROM json_each(:words)) AND s.deleted IS NULL
 ORDER BY s.last_active DESC
 LIMIT :limit;

-- size --
SELECT count(*) FROM sessions;
