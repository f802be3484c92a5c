-- said --
-- Messages with prose, and the nearest one before in the same session that has prose too, whatever their flags: a flag may
-- change, and what was embedded does not follow it.
SELECT m.id, s.id, m.role, m.content, m.parts,
       (SELECT p.id FROM messages p WHERE p.session = m.session AND p.id < m.id AND p.role IN ('user', 'assistant')
           AND (p.content IS NOT NULL AND p.content <> '' OR p.parts IS NOT NULL)
         ORDER BY p.id DESC LIMIT 1)
  FROM messages m JOIN sessions s ON s.key = m.session
 WHERE m.id = ANY(:ids) AND m.role IN ('user', 'assistant')
   AND (m.content IS NOT NULL AND m.content <> '' OR m.parts IS NOT NULL)
 ORDER BY m.id;

-- contents --
SELECT id, content, parts FROM messages WHERE id = ANY(:ids);

-- places --
-- Curated documents that were ever written to.
SELECT DISTINCT target, profile, project, user FROM curated_changes ORDER BY profile, project, user, target;
