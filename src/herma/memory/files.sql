-- last_change --
-- The newest change of a document that was not void: what the file should hold now. Only this one can still be in
-- doubt: each change settles those before it, so an older one that is marked open happened.
SELECT id, before_hash, after_hash, after_text, state
  FROM curated_changes
 WHERE profile = :profile AND project = :project AND user = :user AND target = :target AND state <> 'void'
 ORDER BY id DESC
 LIMIT 1;

-- settle_void --
UPDATE curated_changes SET state = 'void' WHERE id = :id AND state = 'open';

-- forget_void --
-- What a change that never happened said about entries, trust in them above all, was never said.
DELETE FROM curated_entries
 WHERE (profile, project, user, target) = (SELECT profile, project, user, target FROM curated_changes WHERE id = :id)
   AND change_id = :id;

-- insert_change --
INSERT INTO curated_changes
       (at, profile, project, user, target, who, origin, session_id, message_id, action, reason, undoes,
        before_hash, after_hash, after_text, state)
VALUES (:at, :profile, :project, :user, :target, :who, :origin, :session, :message, :action, :reason, :undoes,
        :before_hash, :after_hash, :after_text, :state)
RETURNING id;

-- changes_of --
-- The newest changes of one document, by its index.
SELECT id FROM curated_changes
 WHERE profile = :profile AND project = :project AND user = :user AND target = :target AND state <> 'void'
 ORDER BY id DESC
 LIMIT :limit;

-- all_changes --
SELECT id FROM curated_changes WHERE state <> 'void' ORDER BY id DESC LIMIT :limit;

-- changes --
-- By their ids, newest first. The text before a change is the text after the one before it in the same document.
SELECT c.id, c.at, c.profile, c.project, c.user, c.target, c.who, c.origin, c.session_id, c.message_id,
       c.action, c.reason, c.undoes, c.after_text,
       coalesce((SELECT p.after_text FROM curated_changes p
                  WHERE p.profile = c.profile AND p.project = c.project AND p.user = c.user AND p.target = c.target
                    AND p.state <> 'void' AND p.id < c.id
                  ORDER BY p.id DESC LIMIT 1), '') AS before_text
  FROM curated_changes c
 WHERE c.id = ANY(:ids) AND c.state <> 'void'
 ORDER BY c.id DESC;

-- text_at --
-- A text that a document once had, by the beginning of its hash.
SELECT after_text
  FROM curated_changes
 WHERE profile = :profile AND project = :project AND user = :user AND target = :target
   AND substr(after_hash, 1, length(:version)) = :version
 ORDER BY id DESC
 LIMIT 1;

-- undos --
-- Which change undoes which: few rows, by their own index.
SELECT undoes, id
  FROM curated_changes INDEXED BY curated_changes_by_undone
 WHERE undoes IS NOT NULL AND state <> 'void'
 ORDER BY id;

-- project_keys --
SELECT project FROM curated_changes WHERE project <> '' GROUP BY project ORDER BY min(id);

-- user_keys --
SELECT user FROM curated_changes WHERE user <> '' GROUP BY user ORDER BY min(id);

-- notes --
-- With the hand that made the change which wrote the entry.
SELECT hash, category, tags, origin, vouched, created, changed, confirmed, change_id,
       (SELECT c.who FROM curated_changes c WHERE c.id = change_id)
  FROM curated_entries
 WHERE profile = :profile AND project = :project AND user = :user AND target = :target
   AND hash = ANY(:hashes);

-- upsert_note --
INSERT INTO curated_entries
       (profile, project, user, target, hash, category, tags, origin, vouched, created, changed, confirmed, change_id)
VALUES (:profile, :project, :user, :target, :hash, :category, :tags, :origin, :vouched, :created, :changed, :confirmed,
        :change)
ON CONFLICT (profile, project, user, target, hash) DO UPDATE SET
       category = excluded.category, tags = excluded.tags, origin = excluded.origin, vouched = excluded.vouched,
       created = excluded.created, changed = excluded.changed, confirmed = excluded.confirmed,
       change_id = excluded.change_id;

-- insert_pending --
INSERT INTO curated_inbox
       (at, expires, profile, project, user, target, who, origin, session_id, message_id, reason, operations, fingerprint)
VALUES (:at, :expires, :profile, :project, :user, :target, :who, :origin, :session, :message, :reason, :operations,
        :fingerprint)
RETURNING id;

-- same_proposal --
-- The newest proposal with the same fingerprint that is still waiting, or that a person rejected.
SELECT id, at, expires, profile, project, user, target, who, origin, session_id, message_id, reason, operations,
       coalesce(decision, '')
  FROM curated_inbox
 WHERE fingerprint = :fingerprint AND ((decision IS NULL AND expires > :now) OR decision = 'rejected')
 ORDER BY id DESC
 LIMIT 1;

-- waiting --
SELECT id, at, expires, profile, project, user, target, who, origin, session_id, message_id, reason, operations, ''
  FROM curated_inbox
 WHERE decision IS NULL AND expires > :now AND (:id IS NULL OR id = :id)
 ORDER BY id;

-- rejected --
-- What a person rejected stays rejected in every session and project of the same user.
SELECT id, at, expires, profile, project, user, target, who, origin, session_id, message_id, reason, operations, decision
  FROM curated_inbox
 WHERE decision = 'rejected' AND profile = :profile AND user = :user AND target = :target
 ORDER BY id DESC
 LIMIT 1000;

-- decide --
UPDATE curated_inbox SET decision = :decision, decided = :now WHERE id = :id;
