-- move --
INSERT INTO curated_tail (profile, project, user, target, hash, text, at, why, change_id)
VALUES (:profile, :project, :user, :target, :hash, :text, :at, :why, :change)
RETURNING id;

-- add_term --
INSERT INTO curated_tail_terms (term, entry) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- back --
-- Entries that a change writes leave the archive. What the change itself moves there comes afterwards.
UPDATE curated_tail SET back = :change
 WHERE profile = :profile AND project = :project AND user = :user AND target = :target
   AND hash = ANY(:hashes) AND back IS NULL;

-- void_terms --
DELETE FROM curated_tail_terms WHERE entry IN (SELECT id FROM curated_tail WHERE change_id = :id);

-- void --
-- The change never happened: nothing was taken out by it,
DELETE FROM curated_tail WHERE change_id = :id;

-- void_back --
-- and nothing came back.
UPDATE curated_tail SET back = NULL WHERE back = :id;

-- columns --
SELECT t.id, t.profile, t.project, t.user, t.target, t.text, t.at, t.why, t.change_id, t.back, t.uses, t.last_used, t.proposed,
       t.forgotten, c.reason, e.category, e.tags
  FROM curated_tail t
  LEFT JOIN curated_changes c ON c.id = t.change_id
  LEFT JOIN curated_entries e ON e.profile = t.profile AND e.project = t.project AND e.user = t.user AND e.target = t.target
                             AND e.hash = t.hash

-- of_place --
 WHERE t.profile = :profile AND t.project = :project AND t.user = :user AND t.target = :target
 ORDER BY t.id DESC;

-- everything --
 ORDER BY t.id DESC;

-- get --
 WHERE t.id = ANY(:ids);

-- with_term --
-- The newest of those that have a word.
SELECT entry FROM curated_tail_terms WHERE term = :term ORDER BY entry DESC LIMIT :most;

-- kept --
-- Which of these entries are in the archive of a document.
SELECT hash, change_id, back FROM curated_tail
 WHERE profile = :profile AND project = :project AND user = :user AND target = :target
   AND hash = ANY(:hashes) AND why = 'room' AND forgotten IS NULL;

-- use --
INSERT INTO curated_tail_uses (entry, conversation) VALUES (:id, :conversation) ON CONFLICT DO NOTHING;

-- used --
UPDATE curated_tail
   SET last_used = :at, uses = (SELECT count(*) FROM curated_tail_uses u WHERE u.entry = curated_tail.id)
 WHERE id = :id;

-- moved_by --
SELECT text FROM curated_tail WHERE change_id = :change AND why = 'room' ORDER BY id;

-- any --
SELECT 1 FROM curated_tail
 WHERE profile = :profile AND project = :project AND user = :user AND target = :target
 LIMIT 1;

-- proposed --
UPDATE curated_tail SET proposed = :at WHERE id = ANY(:ids);

-- forgotten --
UPDATE curated_tail SET forgotten = :at WHERE id = ANY(:ids);

-- version --
-- Different after everything that may change a text of the archive.
SELECT (SELECT coalesce(max(id), 0) FROM curated_tail), (SELECT count(*) FROM curated_tail WHERE forgotten IS NOT NULL),
       (SELECT coalesce(max(back), 0) FROM curated_tail WHERE back IS NOT NULL),
       (SELECT coalesce(max(id), 0) FROM curated_changes WHERE undoes IS NOT NULL);
