-- begin --
INSERT INTO imports (at, source) VALUES (:at, :source) RETURNING id;

-- count --
UPDATE imports SET sessions = sessions + :sessions, messages = messages + :messages WHERE id = :id;

-- forget_empty --
DELETE FROM imports WHERE id = :id AND sessions = 0 AND messages = 0;

-- list --
-- One that added nothing is left by a program that was killed.
SELECT id, at, source, sessions, messages, undone FROM imports
 WHERE sessions > 0 OR messages > 0
 ORDER BY id DESC LIMIT :limit;

-- get --
SELECT id, at, source, sessions, messages, undone FROM imports WHERE id = :id;

-- undo --
UPDATE imports SET undone = :at WHERE id = :id AND undone IS NULL;

-- session --
-- A session by its id: its key, whether it was deleted, whether it was imported before, and whether that import was undone.
SELECT s.key, s.deleted IS NOT NULL, i.id IS NOT NULL, m.undone IS NOT NULL
  FROM (SELECT CAST(:id AS TEXT) AS id) w
  LEFT JOIN sessions s ON s.id = w.id
  LEFT JOIN import_sessions i ON i.id = w.id
  LEFT JOIN imports m ON m.id = i.import;

-- remember_session --
INSERT INTO import_sessions (id, import) VALUES (:id, :import)
    ON CONFLICT (id) DO UPDATE SET import = excluded.import;

-- bring_back --
UPDATE sessions SET deleted = NULL, title = NULL WHERE key = :key;

-- known_keys --
SELECT key, message FROM import_keys WHERE session = :session AND key = ANY(:keys);

-- add_key --
INSERT INTO import_keys (session, key, message) VALUES (?, ?, ?) ON CONFLICT DO NOTHING;

-- move_key --
UPDATE import_keys SET message = ? WHERE session = ? AND key = ?;

-- shown --
SELECT id FROM messages WHERE session = :session AND id BETWEEN :first AND :last AND hidden = '' ORDER BY id;

-- add_part --
-- With negative ids: what the import took back.
INSERT INTO import_parts (import, session, first_id, last_id) VALUES (:import, :session, :first, :last);

-- asked_again --
-- Where the messages behind another end, if a person spoke there or went back on purpose: they are another branch.
SELECT max(id) FROM messages
 WHERE session = :session AND id > :message AND hidden = ''
HAVING :rewinds OR sum(role = 'user') > 0;

-- describe --
-- What a later part of a file says of a session; an imported session has ended.
UPDATE sessions
   SET model = coalesce(:model, model),
       folder = CASE WHEN :folder = '' THEN folder ELSE :folder END,
       branch = CASE WHEN :branch = '' THEN branch ELSE :branch END,
       ended = last_active,
       end_reason = 'imported'
 WHERE key = :key;

-- rename --
UPDATE sessions SET title = :title WHERE key = :key;

-- calls --
-- The newest tool calls of a session.
SELECT m.tool_calls FROM messages m JOIN sessions s ON s.key = m.session
 WHERE s.id = :id AND m.tool_calls IS NOT NULL
 ORDER BY m.id DESC LIMIT 50;

-- set_usage --
UPDATE sessions
   SET input_tokens = :input, output_tokens = :output, cache_read_tokens = :cache_read,
       cache_write_tokens = :cache_write, reasoning_tokens = :reasoning, cost_usd = :cost_usd
 WHERE key = :key;

-- title --
SELECT title FROM sessions WHERE key = :key;

-- file --
SELECT size, modified, position, lines, mark FROM import_files WHERE path = :path AND source = :source;

-- file_done --
INSERT INTO import_files (path, source, size, modified, position, lines, mark)
VALUES (:path, :source, :size, :modified, :position, :lines, :mark)
    ON CONFLICT (path) DO UPDATE
   SET source = excluded.source, size = excluded.size, modified = excluded.modified, position = excluded.position,
       lines = excluded.lines, mark = excluded.mark;

-- forget_files --
-- After an import was undone, the next one reads everything again.
DELETE FROM import_files WHERE source = ANY(:sources);

-- sessions_of --
SELECT id FROM import_sessions WHERE import = :import;

-- undone_sessions --
SELECT i.id FROM imports m JOIN import_sessions i ON i.import = m.id WHERE m.undone IS NOT NULL;

-- parts_of --
-- What an import appended to, and took back in, sessions that other imports had begun.
SELECT p.session, p.first_id, p.last_id
  FROM import_parts p JOIN sessions s ON s.key = p.session JOIN import_sessions i ON i.id = s.id
 WHERE p.import = :import AND i.import <> :import;

-- drop_keys --
DELETE FROM import_keys WHERE session = :session AND message BETWEEN :first AND :last;

-- drop_part --
DELETE FROM import_parts WHERE import = :import AND first_id = :first;
