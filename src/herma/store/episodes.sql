-- visible --
-- Episodes and states of a conversation with a deleted session wait with it.
NOT EXISTS (SELECT 1 FROM sessions s WHERE s.conversation = e.conversation AND s.deleted IS NOT NULL)

-- columns --
-- How every query here reads an episode.
SELECT e.id, e.conversation, e.session_id, e.source, e.profile, e.project, e.user, e.started, e.ended, e.task, e.category,
       e.steps, e.tools, e.outcome, e.why, e.result, e.error, e.remedy, e.skills_applied, e.skills_created,
       e.first_message, e.last_message, e.built_by, e.updated, e.uses, e.last_used, e.superseded_by, e.archived
  FROM episodes e

-- put --
-- What was learnt about its use stays; a conversation that goes on is taken out of the archive.
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
       archived = iif(excluded.last_message > last_message, NULL, archived)
RETURNING id;

-- conversation_there --
-- Whether it has sessions, none of them deleted: what is purged meanwhile must not come back as an episode.
SELECT count(*), count(deleted) FROM sessions WHERE conversation = :conversation;

-- supersede --
UPDATE episodes SET superseded_by = :id
 WHERE task_key = :task_key AND id <> :id AND profile = :profile AND project = :project AND user = :user
   AND ended <= :ended AND superseded_by IS NULL;

-- superseder --
-- The newest later episode of the same task, for one that is made again.
SELECT id FROM episodes
 WHERE task_key = :task_key AND id <> :id AND profile = :profile AND project = :project AND user = :user
   AND ended > :ended
 ORDER BY ended DESC LIMIT 1;

-- superseded_by --
UPDATE episodes SET superseded_by = :by WHERE id = :id;

-- release --
-- Who was superseded by one that is gone, or is about something else now, stands for itself again.
UPDATE episodes SET superseded_by = NULL
 WHERE superseded_by = :id
   AND NOT EXISTS (SELECT 1 FROM episodes b WHERE b.id = :id AND b.task_key = episodes.task_key);

-- get --
 WHERE e.id IN (SELECT value FROM json_each(:ids)) AND {visible};

-- of_conversation --
 WHERE e.conversation = coalesce((SELECT s.conversation FROM sessions s WHERE s.id = :conversation), :conversation)
   AND {visible};

-- select --
-- {conditions} are those that were asked for, so that an index fits them; only the chosen rows are read whole.
 WHERE e.id IN (SELECT e.id FROM episodes e WHERE {conditions} AND {visible}
                 ORDER BY e.ended DESC, e.id DESC LIMIT :limit OFFSET :offset)
 ORDER BY e.ended DESC, e.id DESC;

-- used --
UPDATE episodes SET uses = uses + 1, last_used = :at WHERE id IN (SELECT value FROM json_each(:ids));

-- archive --
UPDATE episodes SET archived = :at, updated = max(updated, :at) WHERE id IN (SELECT value FROM json_each(:ids)) AND archived IS NULL;

-- unarchive --
UPDATE episodes SET archived = NULL, last_used = :at, updated = max(updated, :at)
 WHERE id IN (SELECT value FROM json_each(:ids)) AND archived IS NOT NULL;

-- remove --
DELETE FROM episodes WHERE conversation = :conversation RETURNING id;

-- with_term --
-- Live episodes that have a term, the newest first, by the table's own order. A term that very many have tells little.
SELECT episode FROM episode_terms WHERE term = :term ORDER BY episode DESC LIMIT :most;

-- drop_terms --
DELETE FROM episode_terms WHERE episode IN (SELECT value FROM json_each(:ids));

-- add_term --
INSERT OR IGNORE INTO episode_terms (term, episode) VALUES (?, ?);

-- weights --
SELECT id, ended, outcome, remedy <> '', uses, last_used, superseded_by IS NOT NULL
  FROM episodes
 WHERE archived IS NULL;

-- months --
SELECT iif(e.ended BETWEEN 0 AND 253402300799.999, strftime('%Y-%m', e.ended, 'unixepoch'), 'unknown') AS month, count(*)
  FROM episodes e
 WHERE e.archived IS NOT NULL AND e.profile = :profile AND (:user IS NULL OR e.user = :user) AND {visible}
 GROUP BY month ORDER BY month DESC;

-- archived_in --
 WHERE e.archived IS NOT NULL AND e.profile = :profile AND (:user IS NULL OR e.user = :user)
   AND iif(e.ended BETWEEN 0 AND 253402300799.999, strftime('%Y-%m', e.ended, 'unixepoch'), 'unknown') = :month AND {visible}
 ORDER BY e.ended, e.id;

-- live_count --
SELECT count(*) FROM episodes WHERE archived IS NULL;

-- version --
-- Three looks at indexes: what is new has a larger number, what is gone is missing in the count.
SELECT (SELECT count(*) FROM episodes), (SELECT max(updated) FROM episodes), (SELECT max(id) FROM episodes);

-- put_state --
INSERT OR REPLACE INTO session_states
       (conversation, session_id, profile, project, user, at, folder, branch, open_tasks, files, next_step, last_request,
        finished, built_by)
VALUES (:conversation, :session_id, :profile, :project, :user, :at, :folder, :branch, :open_tasks, :files, :next_step,
        :last_request, :finished, :built_by);

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
-- Of a conversation, or of the one that a session belongs to: a session that has just gone on knows only its own id.
SELECT id FROM sessions
 WHERE conversation = coalesce((SELECT s.conversation FROM sessions s WHERE s.id = :conversation), :conversation)
 ORDER BY started, key;

-- unended --
-- Among the sessions that were last active: the newest of its conversation, in a project, that nobody ended.
SELECT s.conversation
  FROM (SELECT key, id, conversation, reason, source, profile, project, user, ended, deleted, message_count, last_active
          FROM sessions ORDER BY last_active DESC LIMIT :looked_at) s
 WHERE s.profile = :profile AND s.project = :project AND s.user = :user AND s.last_active > :since
   AND s.ended IS NULL AND s.deleted IS NULL AND s.message_count > 0
   AND s.conversation NOT IN (SELECT value FROM json_each(:not_of))
   AND NOT EXISTS (SELECT 1 FROM sessions n
                    WHERE n.conversation = s.conversation AND (n.deleted IS NOT NULL OR n.last_active > s.last_active))
   AND NOT EXISTS (SELECT 1 FROM sessions f
                    WHERE f.id = s.conversation
                      AND (f.reason = 'delegation' OR f.source IN (SELECT value FROM json_each(:others))))
 ORDER BY s.last_active DESC, s.key DESC LIMIT 1;

-- without_episode --
-- Conversations that got messages after their state was noted. Those that were delegated belong to whoever delegated,
-- and reviews to what they looked back at.
SELECT s.conversation
  FROM sessions s
 WHERE s.conversation > :after AND s.message_count > 0
   AND NOT EXISTS (SELECT 1 FROM sessions f
                    WHERE f.id = s.conversation
                      AND (f.reason = 'delegation' OR f.source IN (SELECT value FROM json_each(:others))))
 GROUP BY s.conversation
HAVING count(s.deleted) = 0
   AND (:everything
        OR max(s.last_active) > coalesce((SELECT x.at FROM session_states x WHERE x.conversation = s.conversation), -1))
 ORDER BY s.conversation
 LIMIT :limit;

-- keys --
-- Sessions of a conversation in their order.
SELECT key, id FROM sessions WHERE conversation = :conversation AND deleted IS NULL ORDER BY started, key;

-- first_messages --
SELECT id, role, timestamp, content, parts, tool_calls, tool_call_id, tool_name, finish_reason
  FROM messages WHERE session = :key AND hidden <> 'rewound' ORDER BY id LIMIT :limit;

-- last_messages --
SELECT id, role, timestamp, content, parts, tool_calls, tool_call_id, tool_name, finish_reason
  FROM messages WHERE session = :key AND hidden <> 'rewound' AND id > :after ORDER BY id DESC LIMIT :limit;

-- payload_beginnings --
-- How texts begin that are too large to be read; what no one would read is left out.
SELECT id, codec, substr(data, 1, :most) FROM payloads
 WHERE id IN (SELECT value FROM json_each(:ids)) AND kind = 'text';

-- payload_sizes --
SELECT id FROM payloads WHERE id IN (SELECT value FROM json_each(:ids)) AND size <= :largest AND kind = 'text';
