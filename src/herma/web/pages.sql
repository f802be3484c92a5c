-- stamp --
-- What is the same until a message, an entry, a skill, a proposal or an import comes or goes.
SELECT (SELECT coalesce(max(seq), 0) FROM changes), (SELECT coalesce(max(id), 0) FROM curated_changes),
       (SELECT coalesce(max(id), 0) FROM curated_inbox), (SELECT count(*) FROM curated_inbox WHERE decision IS NULL),
       (SELECT coalesce(max(id), 0) FROM skill_changes), (SELECT count(*) FROM skill_inbox WHERE decision IS NULL),
       (SELECT coalesce(max(id), 0) FROM calls), (SELECT count(*) FROM imports WHERE undone IS NULL);

-- outcomes --
-- How the newest episodes ended, and the skills that they used, as a JSON array.
SELECT e.ended, e.outcome, e.skills_applied
  FROM episodes e
 WHERE e.profile = :profile AND e.ended >= :since
   AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.conversation = e.conversation AND s.deleted IS NOT NULL)
 ORDER BY e.ended DESC
 LIMIT 5000;
