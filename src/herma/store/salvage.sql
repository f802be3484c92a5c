-- without_session --
-- Sessions that messages name and that were not found, with what their messages tell about them.
SELECT session, min(timestamp), max(timestamp) FROM messages
 WHERE session NOT IN (SELECT key FROM sessions)
 GROUP BY session;

-- stand_in --
-- A session of which only its number was found, or what an index says.
INSERT INTO sessions (key, id, source, profile, project, user, chat, reason, conversation, started, last_active)
VALUES (:key, :id, 'recovered', '', '', '', '', 'new', :id, :started, :last_active);

-- lost_prompts --
UPDATE sessions SET prompt = NULL WHERE prompt NOT IN (SELECT id FROM payloads);

-- lost_undone --
UPDATE curated_changes SET undoes = NULL WHERE undoes NOT IN (SELECT id FROM curated_changes);

-- lost_undone_of_skills --
UPDATE skill_changes SET undoes = NULL WHERE undoes NOT IN (SELECT id FROM skill_changes);

-- purged --
-- Rows that were deleted for good, found again on pages that were not overwritten yet: they stay deleted.
DELETE FROM messages WHERE id = ?;

-- in_pieces --
-- Messages with values that are put together from pieces.
SELECT id, content, parts, tool_calls, reasoning, sent, sent_parts, extra
  FROM messages
 WHERE id > :after
   AND 'blob' IN (typeof(content), typeof(parts), typeof(tool_calls), typeof(reasoning), typeof(sent),
                  typeof(sent_parts), typeof(extra))
 ORDER BY id LIMIT 500;

-- payload_ids --
SELECT id FROM payloads;

-- use --
INSERT OR IGNORE INTO payload_uses (payload, message) VALUES (?, ?);

-- unused --
SELECT count(*) FROM payloads p
 WHERE NOT EXISTS (SELECT 1 FROM payload_uses u WHERE u.payload = p.id)
   AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.prompt = p.id);

-- unused_stray --
DELETE FROM payloads
 WHERE id = ?1
   AND NOT EXISTS (SELECT 1 FROM payload_uses u WHERE u.payload = payloads.id)
   AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.prompt = payloads.id);

-- empty_stray --
DELETE FROM sessions WHERE key = ?1 AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session = sessions.key);

-- homeless_stray --
-- An episode whose conversation is not here was purged with it.
DELETE FROM episodes
 WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.conversation = episodes.conversation);

-- homeless_states --
DELETE FROM session_states
 WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.conversation = session_states.conversation);

-- homeless_review --
-- What was noted about a conversation that is gone went with it.
DELETE FROM reviews
 WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.conversation = reviews.conversation);

-- not_uses --
-- Without a list of tables, rows of the indexes that find terms by their owner look like uses.
DELETE FROM curated_tail_uses
 WHERE entry NOT IN (SELECT id FROM curated_tail)
    OR EXISTS (SELECT 1 FROM episode_terms t WHERE t.term = conversation AND t.episode = entry)
    OR EXISTS (SELECT 1 FROM curated_tail_terms t WHERE t.term = conversation AND t.entry = curated_tail_uses.entry);

-- homeless_terms --
DELETE FROM episode_terms WHERE episode NOT IN (SELECT id FROM episodes WHERE archived IS NULL);

-- recount --
UPDATE sessions
   SET message_count = (SELECT count(*) FROM messages m WHERE m.session = sessions.key AND m.hidden = '');

-- counted --
SELECT key, id, message_count FROM sessions;

-- message_ids --
SELECT id FROM messages ORDER BY id;

-- change --
INSERT INTO changes (gone, first_id, count) VALUES (0, ?, ?);

-- sequence --
-- Numbers that were given out once are not given out again.
INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?);

-- untitled --
-- A title is unique; of two rows that have the same one, only the first keeps it.
SELECT 1 FROM sessions WHERE title = ? AND profile = ? AND user = ? AND deleted IS NULL;

-- tail_entries --
SELECT id, text FROM curated_tail;

-- episode_term --
INSERT OR IGNORE INTO episode_terms (term, episode) VALUES (?, ?);

-- entry_term --
INSERT OR IGNORE INTO curated_tail_terms (term, entry) VALUES (?, ?);

-- count_terms --
SELECT 'episode_terms', count(*) FROM episode_terms
 UNION ALL
SELECT 'curated_tail_terms', count(*) FROM curated_tail_terms;
