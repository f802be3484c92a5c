-- visible --
-- Episodes and states of a conversation with a deleted session are hidden with it.
NOT EXISTS (SELECT 1 FROM sessions s WHERE s.conversation = e.conversation AND s.deleted IS NOT NULL)

-- columns --
-- How every query here reads an episode.
SELECT e.id, e.conversation, e.session_id, e.source, e.profile, e.project, e.user, e.started, e.ended, e.task, e.category,
       e.steps, e.tools, e.outcome, e.why, e.result, e.error, e.remedy, e.skills_applied, e.skills_created,
       e.first_message, e.last_message, e.built_by, e.updated, e.uses, e.last_used, e.superseded_by, e.archived
  FROM episodes e

-- put --
-- A conversation that continues is taken out of the archive.
INSERT INTO episodes
       (conversation, session_id, source, profile, project, user, started, ended, task, category, steps, tools, outcome,
        why, result, error, remedy, skills_applied, skills_created, first_message, last_message, built_by, updated,
        uses, last_used, task_key)
VALUES (:conversation, :session_id, :source, :profile, :project, :user, :started, :ended, :task, :category, :steps, :tools,
        :outcome, :why, :result, :error, :remedy, :skills_applied, :skills_created, :first_message, :last_message,
        :built_by, :updated, :uses, :last_used, :task_key)
ON CONFLICT (conversation) DO UPDATE SET
       session_id = excluded.session_id, source = excluded.source, profile = excluded.profile,
       project = excluded.project, user = excluded.user, started = excluded.started, ended = excluded.ended,
       task = excluded.task, category = excluded.category, steps = excluded.steps, tools = excluded.tools,
       outcome = excluded.outcome, why = excluded.why, result = excluded.result, error = excluded.error,
       remedy = excluded.remedy, skills_applied = excluded.skills_applied, skills_created = excluded.skills_created,
       first_message = excluded.first_message, last_message = excluded.last_message, built_by = excluded.built_by,
       updated = excluded.updated, task_key = excluded.task_key,
       archived = CASE WHEN excluded.last_message > episodes.last_message THEN NULL ELSE episodes.archived END
RETURNING id;

-- conversation_there --
-- How many sessions it has, and how many of them are deleted: a purged conversation must not come back as an episode.
SELECT count(*), count(deleted) FROM sessions WHERE conversation = :conversation;

-- supersede --
UPDATE episodes SET superseded_by = :id
 WHERE task_key = :task_key AND id <> :id AND profile = :profile AND project = :project AND user = :user
   AND ended <= :ended AND superseded_by IS NULL;

-- superseder --
-- The newest later episode of the same task, when an episode is made again.
SELECT id FROM episodes
 WHERE task_key = :task_key AND id <> :id AND profile = :profile AND project = :project AND user = :user
   AND ended > :ended
 ORDER BY ended DESC LIMIT 1;

-- superseded_by --
UPDATE episodes SET superseded_by = :by WHERE id = :id;

-- release --
-- Episodes are no longer superseded by one that was deleted, or that has another task now.
UPDATE episodes SET superseded_by = NULL
 WHERE superseded_by = :id
   AND NOT EXISTS (SELECT 1 FROM episodes b WHERE b.id = :id AND b.task_key = episodes.task_key);

-- get --
 WHERE e.id = ANY(:ids) AND {visible};

-- visible_of --
SELECT e.id FROM episodes e
 WHERE e.id = ANY(:ids) AND e.archived IS NULL AND e.profile = :profile AND e.user = :user AND e.conversation <> :not_of
   AND {visible};

-- of_conversation --
 WHERE e.conversation = coalesce((SELECT s.conversation FROM sessions s WHERE s.id = :conversation), :conversation)
   AND {visible};

-- select --
-- {conditions} are those that are set, so that an index fits; only the chosen rows are read in full.
 WHERE e.id IN (SELECT e.id FROM episodes e WHERE {conditions} AND {visible}
                 ORDER BY e.ended DESC, e.id DESC LIMIT :limit OFFSET :offset)
 ORDER BY e.ended DESC, e.id DESC;

-- used --
UPDATE episodes SET uses = uses + 1, last_used = :at WHERE id = ANY(:ids);

-- archive --
UPDATE episodes SET archived = :at, updated = max(updated, :at) WHERE id = ANY(:ids) AND archived IS NULL;

-- unarchive --
UPDATE episodes SET archived = NULL, last_used = :at, updated = max(updated, :at)
 WHERE id = ANY(:ids) AND archived IS NOT NULL;

-- remove --
DELETE FROM episodes WHERE conversation = :conversation RETURNING id;

-- with_term --
-- The newest episodes that have a term, in the order of the table; archived ones have no terms.
SELECT episode FROM episode_terms WHERE term = :term ORDER BY episode DESC LIMIT :most;

-- drop_terms --
DELETE FROM episode_terms WHERE episode = ANY(:ids);

-- add_term --
INSERT INTO episode_terms (term, episode) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- weights --
SELECT id, ended, outcome, remedy <> '', uses, last_used, superseded_by IS NOT NULL
  FROM episodes
 WHERE archived IS NULL;

-- live_count --
SELECT count(*) FROM episodes WHERE archived IS NULL;

-- version --
-- Three reads of indexes: a new row has a larger id, a deleted one is missing in the count.
SELECT (SELECT count(*) FROM episodes), (SELECT max(updated) FROM episodes), (SELECT max(id) FROM episodes);

-- put_state --
INSERT INTO session_states
       (conversation, session_id, profile, project, user, at, folder, branch, open_tasks, files, next_step, last_request,
        finished, built_by)
VALUES (:conversation, :session_id, :profile, :project, :user, :at, :folder, :branch, :open_tasks, :files, :next_step,
        :last_request, :finished, :built_by)
ON CONFLICT (conversation) DO UPDATE
   SET session_id = excluded.session_id, profile = excluded.profile, project = excluded.project, user = excluded.user,
       at = excluded.at, folder = excluded.folder, branch = excluded.branch, open_tasks = excluded.open_tasks,
       files = excluded.files, next_step = excluded.next_step, last_request = excluded.last_request,
       finished = excluded.finished, built_by = excluded.built_by;

-- state_columns --
SELECT e.conversation, e.session_id, e.profile, e.project, e.user, e.at, e.folder, e.branch, e.open_tasks, e.files,
       e.next_step, e.last_request, e.finished, e.built_by
  FROM session_states e

-- state_of --
 WHERE e.conversation = coalesce((SELECT s.conversation FROM sessions s WHERE s.id = :conversation), :conversation)
   AND {visible};

-- newest_state --
 WHERE e.profile = :profile AND e.user = :user AND e.project = :project AND e.conversation <> :not_of AND {visible}
 ORDER BY e.at DESC LIMIT 1;

-- sessions --
-- The sessions of a conversation, by its id or by that of a session.
SELECT id FROM sessions
 WHERE conversation = coalesce((SELECT s.conversation FROM sessions s WHERE s.id = :conversation), :conversation)
 ORDER BY started, key;

-- unended --
-- Among the last active sessions: the newest of its conversation, in a project, that was not ended.
SELECT s.conversation
  FROM (SELECT key, id, conversation, reason, source, profile, project, user, ended, deleted, message_count, last_active
          FROM sessions ORDER BY last_active DESC LIMIT :looked_at) s
 WHERE s.profile = :profile AND s.project = :project AND s.user = :user AND s.last_active > :since
   AND s.ended IS NULL AND s.deleted IS NULL AND s.message_count > 0
   AND s.conversation <> ALL(:not_of)
   AND NOT EXISTS (SELECT 1 FROM sessions n
                    WHERE n.conversation = s.conversation AND (n.deleted IS NOT NULL OR n.last_active > s.last_active))
   AND NOT EXISTS (SELECT 1 FROM sessions f
                    WHERE f.id = s.conversation
                      AND (f.reason = 'delegation' OR f.source = ANY(:others)))
 ORDER BY s.last_active DESC, s.key DESC LIMIT 1;

-- without_episode --
-- Conversations with messages since their state was stored. Delegated sessions and reviews are part of others.
SELECT s.conversation
  FROM sessions s
 WHERE s.conversation > :after AND s.message_count > 0
   AND NOT EXISTS (SELECT 1 FROM sessions f
                    WHERE f.id = s.conversation
                      AND (f.reason = 'delegation' OR f.source = ANY(:others)))
 GROUP BY s.conversation
HAVING count(s.deleted) = 0
   AND (:everything
        OR max(s.last_active) > coalesce((SELECT x.at FROM session_states x WHERE x.conversation = s.conversation), -1))
 ORDER BY s.conversation
 LIMIT :limit;

-- keys --
-- The sessions of a conversation in their order.
SELECT key, id FROM sessions WHERE conversation = :conversation AND deleted IS NULL ORDER BY started, key;

-- first_messages --
SELECT id, role, timestamp, content, parts, tool_calls, tool_call_id, tool_name, finish_reason
  FROM messages WHERE session = :key AND hidden <> 'rewound' ORDER BY id LIMIT :limit;

-- last_messages --
SELECT id, role, timestamp, content, parts, tool_calls, tool_call_id, tool_name, finish_reason
  FROM messages WHERE session = :key AND hidden <> 'rewound' AND id > :after ORDER BY id DESC LIMIT :limit;
