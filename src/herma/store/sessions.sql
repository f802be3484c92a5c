-- insert --
-- A session that goes on with its parent's conversation belongs to it, if the parent is here.
INSERT INTO sessions
       (id, source, profile, project, user, chat, model, title, parent, reason, conversation, started, ended, end_reason,
        archived, deleted, prompt, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens,
        cost_usd, last_active, preview, provider, chat_type, folder, branch)
VALUES (:id, :source, :profile, :project, :user, :chat, :model, :title, :parent, :reason,
        CASE WHEN :reason IN ('resume', 'compression')
             THEN coalesce((SELECT conversation FROM sessions WHERE id = :parent), :id)
             ELSE :id END,
        :started, :ended, :end_reason, :archived, :deleted, :prompt, :input, :output, :cache_read, :cache_write,
        :reasoning, :cost_usd, :last_active, :preview, :provider, :chat_type, :folder, :branch)
RETURNING conversation;

-- columns --
-- How every query here reads a session.
SELECT s.id, s.source, s.profile, s.project, s.user, s.chat, s.started, s.conversation, s.title, s.model, s.parent,
       s.reason, s.ended, s.end_reason, s.archived, s.message_count, s.tool_call_count, s.input_tokens, s.output_tokens,
       s.cache_read_tokens, s.cache_write_tokens, s.reasoning_tokens, s.cost_usd, s.last_active, s.preview, s.deleted,
       s.provider, s.chat_type, s.folder, s.branch
  FROM sessions s

-- get --
 WHERE s.id IN (SELECT value FROM json_each(:ids)) AND (s.deleted IS NULL OR :deleted);

-- of_conversations --
 WHERE s.conversation IN (SELECT value FROM json_each(:conversations)) AND s.deleted IS NULL;

-- children --
 WHERE s.parent IN (SELECT value FROM json_each(:parents)) AND s.deleted IS NULL;

-- news --
-- How a session stands, for a program that has it open: nobody tells it what others do.
SELECT s.message_count,
       coalesce((SELECT m.id FROM messages m WHERE m.session = s.key AND m.hidden = '' ORDER BY m.id DESC LIMIT 1), 0),
       coalesce(f.id, ''), coalesce(f.reason, '')
  FROM sessions s
  LEFT JOIN sessions f ON f.parent = s.id AND f.reason IN ('resume', 'compression') AND f.id <> s.id
                      AND f.deleted IS NULL AND f.message_count > 0
 WHERE s.id = :id AND s.deleted IS NULL
 ORDER BY f.last_active DESC, f.key DESC
 LIMIT 1;

-- others_spoken --
-- Whether anything was said outside a conversation. The first that is found answers it, on either side of it.
SELECT EXISTS (SELECT 1 FROM sessions WHERE conversation < :conversation AND message_count > 0 AND deleted IS NULL)
    OR EXISTS (SELECT 1 FROM sessions WHERE conversation > :conversation AND message_count > 0 AND deleted IS NULL);

-- deleted --
 WHERE s.deleted < :before ORDER BY s.deleted, s.key;

-- free_title --
-- Titles are unique, but may move within a conversation.
UPDATE sessions SET title = NULL
 WHERE title = :title AND deleted IS NULL AND id <> :id
   AND (profile, user, conversation) = (SELECT profile, user, conversation FROM sessions WHERE id = :id);

-- end --
UPDATE sessions SET ended = :at, end_reason = :reason WHERE id = :id AND ended IS NULL AND deleted IS NULL;

-- spend --
UPDATE sessions
   SET input_tokens = input_tokens + :input, output_tokens = output_tokens + :output,
       cache_read_tokens = cache_read_tokens + :cache_read, cache_write_tokens = cache_write_tokens + :cache_write,
       reasoning_tokens = reasoning_tokens + :reasoning, cost_usd = cost_usd + :cost_usd
 WHERE id = :id AND deleted IS NULL;

-- system_prompt --
SELECT p.codec, p.data FROM sessions s JOIN payloads p ON p.id = s.prompt WHERE s.id = :id AND s.deleted IS NULL;

-- with_prefix --
-- An index range: every text that begins with the prefix sorts between it and itself followed by the last character.
SELECT id FROM sessions
 WHERE id >= :prefix AND id < :prefix || char(1114111) AND deleted IS NULL AND (:user IS NULL OR user = :user)
 ORDER BY last_active DESC, key DESC
 LIMIT :limit;

-- titles --
-- Two ranges of the index; with OR, SQLite would read everything behind the first.
SELECT title, id FROM sessions
 WHERE title = :base AND deleted IS NULL AND profile = :profile AND user = :user
 UNION ALL
SELECT title, id FROM sessions
 WHERE title >= :base || ' #' AND title < :base || ' $' AND deleted IS NULL AND profile = :profile AND user = :user;

-- recent --
-- Sessions by activity, newest first: the first of a conversation is its newest. The caller stops when it has enough.
SELECT s.conversation
  FROM sessions s
 WHERE s.deleted IS NULL
   AND EXISTS (SELECT 1 FROM sessions m WHERE m.conversation = s.conversation AND m.deleted IS NULL{matches})
 ORDER BY s.last_active DESC, s.key DESC;

-- purge_slice --
-- The next messages of a session that is being purged.
SELECT id FROM messages WHERE session = :key ORDER BY id LIMIT :limit;

-- purge_messages --
DELETE FROM messages WHERE id IN (SELECT value FROM json_each(:ids));

-- purge_uses --
DELETE FROM payload_uses WHERE message IN (SELECT value FROM json_each(:ids)) RETURNING payload;

-- purge_payloads --
-- Payloads that nothing refers to any more.
DELETE FROM payloads
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND NOT EXISTS (SELECT 1 FROM payload_uses u WHERE u.payload = payloads.id)
   AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.prompt = payloads.id);

-- purge_session --
DELETE FROM sessions WHERE key = :key RETURNING prompt;

-- purge_episode_terms --
DELETE FROM episode_terms
 WHERE episode IN (SELECT e.id FROM episodes e JOIN sessions s ON s.conversation = e.conversation WHERE s.key = :key);

-- purge_episode --
-- What is distilled of a conversation holds its text: it goes with the first slice of any of its sessions.
DELETE FROM episodes WHERE conversation = (SELECT conversation FROM sessions WHERE key = :key);

-- purge_state --
DELETE FROM session_states WHERE conversation = (SELECT conversation FROM sessions WHERE key = :key);

-- purge_facts --
-- Facts of curated memory stay with the entry that says so; what a review took from the session goes.
DELETE FROM facts WHERE session_id = :id AND source = 'review';

-- purge_tries --
DELETE FROM compression_tries WHERE conversation = (SELECT conversation FROM sessions WHERE key = :key);

-- purge_reviews --
-- What a look back at the conversation noted holds its text too.
DELETE FROM reviews WHERE conversation = (SELECT conversation FROM sessions WHERE key = :key);

-- key_of_deleted --
SELECT key FROM sessions WHERE id = :id AND deleted IS NOT NULL;

-- purge_change --
INSERT INTO changes (gone, first_id, count) VALUES (1, :first, :count);
