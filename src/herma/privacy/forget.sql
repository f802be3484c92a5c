-- messages --
-- The next messages with every column that holds text.
SELECT m.id, s.id, s.imported IS NOT NULL, s.source, m.content, m.parts, m.tool_calls, m.reasoning, m.sent, m.sent_parts,
       m.extra, m.tool_name
  FROM messages m JOIN sessions s ON s.key = m.session
 WHERE m.id > :after
 ORDER BY m.id
 LIMIT :limit;

-- message_count --
SELECT count(*) FROM messages;

-- blank_message --
UPDATE messages
   SET content = :content, parts = :parts, tool_calls = :tool_calls, reasoning = :reasoning, sent = :sent,
       sent_parts = :sent_parts, extra = :extra, tool_name = :tool_name,
       outside = CASE WHEN outside IS NULL THEN NULL ELSE '[]' END
 WHERE id = :id;

-- changed --
-- The index takes a message out, and in again as it is now.
INSERT INTO changes (gone, first_id, count) VALUES (TRUE, :id, 1), (FALSE, :id, 1);

-- sessions --
SELECT s.id, s.user, s.prompt IS NOT NULL, s.title, s.model, s.preview, s.folder, s.branch FROM sessions s;

-- blank_session --
UPDATE sessions SET title = :title, model = :model, preview = :preview, folder = :folder, branch = :branch
 WHERE id = :id;

-- files --
SELECT path, source FROM import_files;

-- drop_files --
-- They may be read again; messages that are known are not imported twice.
DELETE FROM import_files WHERE path = ANY(:paths);

-- take_prompt --
-- The prompt is gone: the session gets a new one when it continues.
UPDATE sessions SET prompt = NULL, prompt_outside = NULL WHERE id = :id;

-- prompt_of --
SELECT prompt FROM sessions WHERE id = :id AND prompt IS NOT NULL;

-- history --
SELECT id, profile, project, user, target, session_id, reason, before_hash, after_hash, after_text, state
  FROM curated_changes
 ORDER BY id;

-- rewrite --
UPDATE curated_changes
   SET reason = :reason, before_hash = :before_hash, after_hash = :after_hash, after_text = :after_text
 WHERE id = :id;

-- drop_entries --
DELETE FROM curated_entries
 WHERE profile = :profile AND project = :project AND user = :user AND target = :target AND hash = ANY(:hashes);

-- episodes --
SELECT id, session_id, user, task, why, steps, tools, result, error, remedy FROM episodes;

-- drop_episodes --
DELETE FROM episodes WHERE id = ANY(:ids);

-- drop_more_episodes --
DELETE FROM episode_terms WHERE episode = ANY(:ids);

-- states --
SELECT conversation, session_id, user, open_tasks, files, next_step, last_request, folder FROM session_states;

-- drop_states --
DELETE FROM session_states WHERE conversation = ANY(:ids);

-- facts --
SELECT id, session_id, user, text, subject, attribute, value FROM facts;

-- drop_facts --
DELETE FROM facts WHERE id = ANY(:ids);

-- proposals --
SELECT id, session_id, user, reason, operations FROM curated_inbox;

-- drop_proposals --
DELETE FROM curated_inbox WHERE id = ANY(:ids);

-- skill_proposals --
SELECT id, session_id, '', reason, operation FROM skill_inbox;

-- drop_skill_proposals --
DELETE FROM skill_inbox WHERE id = ANY(:ids);

-- archive --
SELECT id, '', user, text FROM curated_tail;

-- drop_archive --
DELETE FROM curated_tail WHERE id = ANY(:ids);

-- drop_more_archive --
DELETE FROM curated_tail_terms WHERE entry = ANY(:ids);

-- drop_uses_archive --
DELETE FROM curated_tail_uses WHERE entry = ANY(:ids);

-- reviews --
SELECT id, session_id, '', why, actions, notice FROM reviews;

-- drop_reviews --
-- That the messages were reviewed stays known, so that they are not reviewed again.
UPDATE reviews SET why = '', actions = '[]', notice = '' WHERE id = ANY(:ids);

-- skill_history --
SELECT id, '', '', skill, reason, before, after FROM skill_changes WHERE state <> 'void';

-- drop_skill_history --
-- The number stays, as that of a change that never happened.
UPDATE skill_changes SET reason = '', before = NULL, after = NULL, state = 'void' WHERE id = ANY(:ids);

-- skills_of --
SELECT DISTINCT skill FROM skill_changes WHERE session_id = ANY(:ids) AND state <> 'void';

-- user_rows --
SELECT (SELECT count(*) FROM curated_changes WHERE user = :user), (SELECT count(*) FROM curated_entries WHERE user = :user);

-- drop_user_changes --
DELETE FROM curated_changes WHERE user = :user;

-- drop_user_entries --
DELETE FROM curated_entries WHERE user = :user;

-- drop_user_tidied --
DELETE FROM curated_tidied WHERE user = :user;

-- drop_user_facts_read --
DELETE FROM facts_read WHERE user = :user;
