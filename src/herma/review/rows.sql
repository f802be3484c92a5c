-- running --
-- Another review of the conversation that has not ended, and whose process may still be at it.
SELECT 1 FROM reviews WHERE conversation = :conversation AND state = 'running' AND lease > :now AND id <> :id LIMIT 1;

-- looked_at --
-- A review of this kind that began with these messages: it is not repeated, whatever came of it. Each request
-- to remember something is one of its own.
SELECT 1 FROM reviews
 WHERE conversation = :conversation AND kind = :kind AND kind <> 'remember' AND last_message >= :last_message AND state <> 'due' AND id <> :id
 LIMIT 1;

-- insert --
INSERT INTO reviews
       (conversation, session_id, kind, why, first_message, last_message, at, state, tries, lease, begun, ended, model,
        steps, input, output, cache_read, cache_write, reasoning, usd, actions, notice)
VALUES (:conversation, :session_id, :kind, :why, :first_message, :last_message, :at, :state, :tries, :lease, :begun,
        NULL, '', 0, 0, 0, 0, 0, 0, NULL, '[]', '')
RETURNING id;

-- overtaken --
UPDATE reviews SET state = 'cancelled', ended = :now, notice = 'A later one looked at the same.' WHERE id = :id;

-- begin --
UPDATE reviews SET state = 'running', tries = tries + 1, begun = :now, lease = :lease
 WHERE id = :id AND (state = 'due' OR (state = 'running' AND lease <= :now))
RETURNING tries;

-- due_of --
-- One that waits and can take more messages in.
SELECT id FROM reviews
 WHERE conversation = :conversation AND kind = :kind AND kind <> 'remember' AND state = 'due'
 ORDER BY id LIMIT 1;

-- extend --
UPDATE reviews SET last_message = max(last_message, :last_message), session_id = :session_id, at = :at, why = :why
 WHERE id = :id;

-- end --
UPDATE reviews
   SET state = :state, tries = :tries, ended = :ended, lease = 0, model = :model, steps = :steps, input = :input, output = :output,
       cache_read = :cache_read, cache_write = :cache_write, reasoning = :reasoning, usd = :usd, actions = :actions,
       notice = :notice
 WHERE id = :id;

-- give_up --
-- A process that was killed leaves a review running: its lease runs out. After enough tries it is over.
UPDATE reviews SET state = 'failed', ended = :now, lease = 0,
       notice = CASE notice WHEN '' THEN 'The program ended while it ran.' ELSE notice END
 WHERE state IN ('due', 'running') AND lease <= :now AND (tries >= :most OR (state = 'running' AND kind = 'turn'));

-- owed --
SELECT id FROM reviews WHERE state IN ('due', 'running') AND lease <= :now ORDER BY id LIMIT :limit;

-- prune [postgres] --
DELETE FROM reviews
 WHERE state NOT IN ('due', 'running') AND coalesce(ended, at) < :before
   AND NOT EXISTS (SELECT 1 FROM json_array_elements(CAST(reviews.actions AS JSON)) a WHERE a ->> 'result' IN ('applied', 'staged'))
   AND EXISTS (SELECT 1 FROM reviews later
                WHERE later.conversation = reviews.conversation AND later.kind = reviews.kind
                  AND later.state NOT IN ('due', 'running')
                  AND (later.last_message > reviews.last_message
                       OR (later.last_message = reviews.last_message AND later.id > reviews.id)));

-- prune [sqlite] --
-- Reviews that ended long ago and wrote nothing, so that there is nothing to undo. The one that got furthest of each kind
-- stays: it says up to where a conversation was looked back at.
DELETE FROM reviews
 WHERE state NOT IN ('due', 'running') AND coalesce(ended, at) < :before
   AND NOT EXISTS (SELECT 1 FROM json_each(reviews.actions) a WHERE json_extract(a.value, '$.result') IN ('applied', 'staged'))
   AND EXISTS (SELECT 1 FROM reviews later
                WHERE later.conversation = reviews.conversation AND later.kind = reviews.kind
                  AND later.state NOT IN ('due', 'running')
                  AND (later.last_message > reviews.last_message
                       OR (later.last_message = reviews.last_message AND later.id > reviews.id)));

-- covered --
SELECT coalesce(max(last_message), 0) FROM reviews WHERE conversation = :conversation AND kind IN ('boundary', 'end');

-- newest --
SELECT id FROM reviews WHERE state <> 'due' OR tries > 0 ORDER BY id DESC LIMIT :limit;

-- newest_of --
SELECT id FROM reviews
 WHERE conversation = :conversation AND (state <> 'due' OR tries > 0)
 ORDER BY id DESC LIMIT :limit;

-- by_id --
SELECT id, conversation, session_id, kind, why, first_message, last_message, at, state, tries, begun, ended, model,
       steps, input, output, cache_read, cache_write, reasoning, usd, actions, notice
  FROM reviews
 WHERE id = ANY(:ids)
 ORDER BY id;

-- proposed_skills --
-- How many changes of skills reviews have proposed that wait for a person.
SELECT count(*) FROM skill_inbox
 WHERE profile = :profile AND who = 'review' AND decision IS NULL AND expires > :now;
