-- last_changes --
-- When each skill was last written, installed or restored. Being put into the archive is no sign of use.
SELECT skill, max(at)
  FROM skill_changes
 WHERE profile = :profile AND state = 'done' AND moved_to NOT LIKE '.archive/%'
 GROUP BY skill;

-- last_message --
-- When anything was last said in this home, besides in one session: from the end, and never further than a few rows of it.
SELECT m.timestamp
  FROM (SELECT session, timestamp FROM messages ORDER BY id DESC LIMIT 2000) AS m
  JOIN sessions AS s ON s.key = m.session
 WHERE s.id <> :session
 LIMIT 1;
