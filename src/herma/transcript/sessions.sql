-- insert --
-- A session that goes on with its parent's conversation belongs to it, if the parent is here. An imported one belongs to
-- none of our own.
INSERT INTO sessions
       (id, source, profile, project, user, chat, model, title, parent, reason, conversation, started, ended, end_reason,
        archived, deleted, prompt, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens,
        cost_usd, last_active, preview, provider, chat_type, folder, branch, imported, prompt_outside)
VALUES (:id, :source, :profile, :project, :user, :chat, :model, :title, :parent, :reason,
        CASE WHEN :reason IN ('resume', 'compression')
             THEN coalesce((SELECT conversation FROM sessions
                             WHERE id = :parent AND (:imported IS NULL OR imported IS NOT NULL)), :id)
             ELSE :id END,
        :started, :ended, :end_reason, :archived, :deleted, :prompt, :input, :output, :cache_read, :cache_write,
        :reasoning, :cost_usd, :last_active, :preview, :provider, :chat_type, :folder, :branch, :imported,
        :prompt_outside)
RETURNING conversation;

-- columns --
-- How every query here reads a session.
SELECT s.id, s.source, s.profile, s.project, s.user, s.chat, s.started, s.conversation, s.title, s.model, s.parent,
       s.reason, s.ended, s.end_reason, s.archived, s.message_count, s.tool_call_count, s.input_tokens, s.output_tokens,
       s.cache_read_tokens, s.cache_write_tokens, s.reasoning_tokens, s.cost_usd, s.last_active, s.preview, s.deleted,
       s.provider, s.chat_type, s.folder, s.branch, s.imported
  FROM sessions s

-- get --
 WHERE s.id = ANY(:ids) AND (s.deleted IS NULL OR :deleted);

-- of_conversations --
 WHERE s.conversation = ANY(:conversations) AND s.deleted IS NULL;

-- children --
 WHERE s.parent = ANY(:parents) AND s.deleted IS NULL;

-- head --
-- The state of a session, for a program that has it open: other programs may have written to it.
SELECT s.message_count,
       coalesce((SELECT m.id FROM messages m WHERE m.session = s.key AND m.hidden = '' ORDER BY m.id DESC LIMIT 1), 0),
       coalesce(f.id, ''), coalesce(f.reason, '')
  FROM sessions s
  LEFT JOIN sessions f ON f.parent = s.id AND f.reason IN ('resume', 'compression') AND f.id <> s.id
                      AND f.deleted IS NULL AND f.message_count > 0 AND f.imported IS NULL
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

-- prompt_outside --
SELECT prompt_outside FROM sessions WHERE id = :id AND deleted IS NULL;

-- with_prefix --
-- An index range: every text that begins with the prefix sorts between it and itself followed by the last character.
SELECT id FROM sessions
 WHERE id >= :prefix AND id < :beyond AND deleted IS NULL AND (:user IS NULL OR user = :user)
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
DELETE FROM messages WHERE id = ANY(:ids);

-- purge_uses --
DELETE FROM payload_uses WHERE message = ANY(:ids) RETURNING payload;

-- purge_payloads --
-- Payloads that nothing refers to any more.
DELETE FROM payloads
 WHERE id = ANY(:ids)
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

-- purge_import_keys --
DELETE FROM import_keys WHERE session = :key;

-- purge_import_parts --
DELETE FROM import_parts WHERE session = :key;

-- key_of_deleted --
SELECT key FROM sessions WHERE id = :id AND deleted IS NOT NULL;

-- purge_change --
INSERT INTO changes (gone, first_id, count) VALUES (TRUE, :first, :count);

-- where_source --
-- The conditions of a filter on sessions, one to a statement; {t} stands for the table.
lower({t}.source) = lower(:source)

-- where_exclude_sources --
lower({t}.source) <> ALL(:exclude_sources)

-- where_profile --
{t}.profile = :profile

-- where_project [sqlite] --
(rtrim(lower({t}.project), '/\') = :project OR substr(lower({t}.project), 1, length(:project) + 1) IN (:project ||
'/', :project || '\') OR (NOT instr(:project, '/') AND NOT instr(:project, '\') AND substr(rtrim(lower({t}.project),
'/\'), -length(:project) - 1) IN ('/' || :project, '\' || :project)))

-- where_project [postgres] --
(rtrim(lower({t}.project), '/\') = :project
OR substr(lower({t}.project), 1, length(:project) + 1) IN (:project || '/', :project || '\')
OR (NOT instr(:project, '/') AND NOT instr(:project, '\')
AND right(rtrim(lower({t}.project), '/\'), length(:project) + 1) IN ('/' || :project, '\' || :project)))

-- where_user --
{t}.user = :user

-- where_chat --
{t}.chat = :chat

-- where_archived --
{t}.archived = :archived

-- where_imported --
({t}.imported IS NOT NULL) = :imported

-- where_delegated --
(coalesce((SELECT r.reason FROM sessions r WHERE r.id = {t}.conversation), '') = 'delegation') = :delegated

-- where_search --
(instr(lower({t}.title), lower(:search)) OR instr(lower({t}.id), lower(:search)) OR
instr(replace(replace(lower({t}.title), '-', ''), '_', ''), replace(replace(lower(:search), '-', ''), '_', '')) OR
((instr(lower({t}.preview), lower(:search)) OR instr(replace(replace(lower({t}.preview), '-', ''), '_', ''),
replace(replace(lower(:search), '-', ''), '_', ''))) AND NOT EXISTS (SELECT 1 FROM sessions n WHERE n.conversation =
{t}.conversation AND n.title IS NOT NULL AND n.deleted IS NULL)))

-- where_model --
instr(lower(coalesce({t}.model, '')), lower(:model))

-- where_provider --
lower({t}.provider) = lower(:provider)

-- where_chat_type --
lower({t}.chat_type) = lower(:chat_type)

-- where_folder --
({t}.folder = :folder OR substr({t}.folder, 1, length(:folder) + 1) IN (:folder || '/', :folder || '\'))

-- where_branch --
instr(lower({t}.branch), lower(:branch))

-- where_end_reason --
lower({t}.end_reason) = lower(:end_reason)

-- where_started_after --
{t}.started >= :started_after

-- where_started_before --
{t}.started <= :started_before

-- where_active_before --
{t}.last_active <= :active_before

-- where_min_messages --
{t}.message_count >= :min_messages

-- where_max_messages --
{t}.message_count <= :max_messages

-- where_min_tool_calls --
{t}.tool_call_count >= :min_tool_calls

-- where_max_tool_calls --
{t}.tool_call_count <= :max_tool_calls

-- where_min_tokens --
({t}.input_tokens + {t}.output_tokens + {t}.cache_read_tokens + {t}.cache_write_tokens + {t}.reasoning_tokens) >=
:min_tokens

-- where_max_tokens --
({t}.input_tokens + {t}.output_tokens + {t}.cache_read_tokens + {t}.cache_write_tokens + {t}.reasoning_tokens) <=
:max_tokens

-- where_min_cost --
{t}.cost_usd >= :min_cost

-- where_max_cost --
{t}.cost_usd <= :max_cost
