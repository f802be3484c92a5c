-- position --
SELECT change_id FROM facts_read
 WHERE profile = :profile AND project = :project AND user = :user AND target = :target;

-- move --
INSERT INTO facts_read (profile, project, user, target, change_id)
VALUES (:profile, :project, :user, :target, :until)
ON CONFLICT (profile, project, user, target) DO UPDATE SET change_id = excluded.change_id;

-- gone --
-- The entry that said so is no longer there.
UPDATE facts SET until = :at
 WHERE profile = :profile AND project = :project AND user = :user AND target = :target AND source = 'curated'
   AND until IS NULL AND text = ANY(:texts);

-- back --
-- Of an entry that comes back by an undo, the facts that went last hold again.
UPDATE facts SET until = NULL
 WHERE profile = :profile AND project = :project AND user = :user AND target = :target AND source = 'curated'
   AND text = :text
   AND until = (SELECT max(o.until) FROM facts o
                 WHERE o.profile = :profile AND o.project = :project AND o.user = :user AND o.target = :target
                   AND o.source = 'curated' AND o.text = :text);

-- unwanted --
-- Whether a person rejected this fact.
SELECT forgotten FROM facts
 WHERE profile = :profile AND project = :project AND user = :user AND subject = :subject AND attribute = :attribute
   AND value = :value AND forgotten IS NOT NULL
 LIMIT 1;

-- insert --
INSERT INTO facts (profile, project, user, subject, attribute, value, valid_from, until, source, text, target, change_id,
                   session_id, message_id, forgotten)
VALUES (:profile, :project, :user, :subject, :attribute, :value, :valid_from, :until, :source, :text, :target, :change,
        :session, :message, :forgotten)
RETURNING id;

-- columns --
SELECT id, profile, project, user, subject, attribute, value, valid_from, until, source, text, target, change_id,
       session_id, message_id, forgotten
  FROM facts

-- of_key --
-- By the index on scope and key.
 WHERE profile = :profile AND project = :project AND user = :user
   AND (:subject IS NULL OR subject = :subject)
 ORDER BY valid_from, id;

-- everything --
 WHERE (:subject IS NULL OR subject = :subject)
 ORDER BY valid_from, id;

-- forget --
UPDATE facts SET forgotten = :at WHERE id = ANY(:ids);

-- clear --
-- Forgotten ones stay as a mark; they are made again beside it, forgotten from the start.
DELETE FROM facts WHERE source = 'curated' AND forgotten IS NULL;

-- clear_forgotten --
-- The mark alone is kept: its entry may be gone by now.
UPDATE facts SET until = valid_from WHERE source = 'curated' AND forgotten IS NOT NULL AND until IS NULL;

-- unread --
DELETE FROM facts_read;
