-- insert_change --
INSERT INTO skill_changes
       (at, profile, skill, path, file, who, origin, session_id, message_id, action, reason, undoes, before_hash, after_hash, before,
        after, moved_from, moved_to, state)
VALUES (:at, :profile, :skill, :path, :file, :who, :origin, :session, :message, :action, :reason, :undoes, :before_hash, :after_hash,
        :before, :after, :moved_from, :moved_to, :state)
RETURNING id;

-- settle --
UPDATE skill_changes SET state = :state WHERE id = :id AND state = 'open';

-- open_changes --
-- Changes that a killed process left open: one at most, because earlier ones are settled before a change begins.
SELECT id, path, file, before_hash, after_hash, moved_from, moved_to
  FROM skill_changes
 WHERE state = 'open' AND profile = :profile
 ORDER BY id;

-- known_files [postgres] --
SELECT DISTINCT ON (file) file, after_hash, after, skill, id
  FROM skill_changes
 WHERE profile = :profile AND path = :path AND file <> '' AND state <> 'void'
 ORDER BY file, id DESC;

-- known_files [sqlite] --
-- The newest state of every file of a skill, as the history has it.
SELECT file, after_hash, after, skill, max(id)
  FROM skill_changes
 WHERE profile = :profile AND path = :path AND file <> '' AND state <> 'void'
 GROUP BY file;

-- last_move --
-- The newest change of a skill: a move, if its folder went elsewhere or came back.
SELECT id, moved_from, moved_to
  FROM skill_changes
 WHERE profile = :profile AND path = :path AND state <> 'void'
 ORDER BY id DESC
 LIMIT 1;

-- known_paths --
SELECT DISTINCT path FROM skill_changes WHERE profile = :profile AND state <> 'void';

-- columns --
-- How every query here reads a change.
SELECT id, at, skill, path, file, who, origin, session_id, message_id, action, reason, undoes, before, after, moved_from, moved_to
  FROM skill_changes

-- changes_of --
 WHERE profile = :profile AND skill = :skill AND state <> 'void' ORDER BY id DESC LIMIT :limit;

-- all_changes --
 WHERE profile = :profile AND state <> 'void' ORDER BY id DESC LIMIT :limit;

-- change --
 WHERE profile = :profile AND id = :id AND state <> 'void';

-- undos --
SELECT undoes, id FROM skill_changes INDEXED BY skill_changes_by_undone WHERE undoes IS NOT NULL AND state <> 'void';

-- archived_from --
-- The skills in the archive: folder there → folder before, newest last.
SELECT moved_to, moved_from, at
  FROM skill_changes
 WHERE profile = :profile AND file = '' AND moved_to LIKE '.archive/%' AND state <> 'void'
 ORDER BY id;

-- insert_pending --
INSERT INTO skill_inbox (at, expires, profile, who, origin, session_id, message_id, reason, operation, fingerprint)
VALUES (:at, :expires, :profile, :who, :origin, :session, :message, :reason, :operation, :fingerprint)
RETURNING id;

-- same_proposal --
-- The newest proposal with the same fingerprint that is still waiting, or that a person rejected.
SELECT id, at, expires, who, origin, session_id, message_id, reason, operation, coalesce(decision, '')
  FROM skill_inbox
 WHERE fingerprint = :fingerprint AND ((decision IS NULL AND expires > :now) OR decision = 'rejected')
 ORDER BY id DESC
 LIMIT 1;

-- waiting --
SELECT id, at, expires, who, origin, session_id, message_id, reason, operation, ''
  FROM skill_inbox
 WHERE profile = :profile AND decision IS NULL AND expires > :now AND (:id IS NULL OR id = :id)
 ORDER BY id;

-- rejected --
SELECT id, at, expires, who, origin, session_id, message_id, reason, operation, decision
  FROM skill_inbox
 WHERE decision = 'rejected' AND profile = :profile
 ORDER BY id DESC
 LIMIT 1000;

-- decide --
UPDATE skill_inbox SET decision = :decision, decided = :now WHERE id = :id;

-- usage --
SELECT name, uses, views, successes, failures, patches, created, last_used, last_viewed, last_patched, state, pinned, origin, source,
       vouched, archived_at
  FROM skill_usage
 WHERE profile = :profile AND (:name IS NULL OR name = :name);

-- count --
-- A skill that is used again is active again; only a person or the curator lifts deprecated and archived. Reading a skill counts as a
-- use; when its outcome is recorded later (resolves), that is the same use. An outcome that is taken back is less than 0.
INSERT INTO skill_usage AS u (profile, name, uses, views, successes, failures, patches, created, last_used, last_viewed, last_patched)
VALUES (:profile, :name, :uses, :views, max(0, :successes), max(0, :failures), :patches, :at, CASE WHEN :uses <> 0 THEN CAST(:at AS DOUBLE PRECISION) END,
        CASE WHEN :views <> 0 THEN CAST(:at AS DOUBLE PRECISION) END, CASE WHEN :patches <> 0 THEN CAST(:at AS DOUBLE PRECISION) END)
    ON CONFLICT (profile, name) DO UPDATE
   SET uses = u.uses + CASE WHEN :resolves AND u.last_used <= u.last_viewed THEN 0 ELSE :uses END, views = u.views + :views,
       successes = max(0, u.successes + :successes), failures = max(0, u.failures + :failures),
       patches = u.patches + :patches,
       last_used = CASE WHEN :uses <> 0 THEN max(coalesce(u.last_used, 0), :at) ELSE u.last_used END,
       last_viewed = CASE WHEN :views <> 0 THEN max(coalesce(u.last_viewed, 0), :at) ELSE u.last_viewed END,
       last_patched = CASE WHEN :patches <> 0 THEN max(coalesce(u.last_patched, 0), :at) ELSE u.last_patched END,
       state = CASE WHEN u.state = 'stale' AND (:uses <> 0 OR :patches <> 0) THEN 'active' ELSE u.state END;

-- put_usage --
INSERT INTO skill_usage (profile, name, created, state, pinned, origin, source, vouched, archived_at)
VALUES (:profile, :name, :created, :state, :pinned, :origin, :source, :vouched, :archived_at)
    ON CONFLICT (profile, name) DO UPDATE
   SET created = excluded.created, state = excluded.state, pinned = excluded.pinned, origin = excluded.origin,
       source = excluded.source, vouched = excluded.vouched, archived_at = excluded.archived_at;

-- set_state --
INSERT INTO skill_usage (profile, name, created, state, archived_at)
VALUES (:profile, :name, :at, :state, CASE :state WHEN 'archived' THEN CAST(:at AS DOUBLE PRECISION) END)
    ON CONFLICT (profile, name) DO UPDATE SET state = excluded.state, archived_at = excluded.archived_at;

-- last_changes --
-- When each skill was last written, installed or restored. Archiving is not a use.
SELECT skill, max(at)
  FROM skill_changes
 WHERE profile = :profile AND state = 'done' AND moved_to NOT LIKE '.archive/%'
 GROUP BY skill;

-- last_message --
-- The time of the last message in this home, except those of one session, among the newest 2,000.
SELECT m.timestamp
  FROM (SELECT session, timestamp FROM messages ORDER BY id DESC LIMIT 2000) AS m
  JOIN sessions AS s ON s.key = m.session
 WHERE s.id <> :session
 LIMIT 1;

-- files_since [postgres] --
SELECT path, hash, executable, data FROM skill_files WHERE seq > :seq ORDER BY path;

-- files_last [postgres] --
SELECT coalesce(max(seq), 0) FROM skill_files;

-- files_put [postgres] --
INSERT INTO skill_files (path, hash, executable, data, seq)
VALUES (:path, :hash, :executable, :data, (SELECT coalesce(max(seq), 0) + 1 FROM skill_files))
    ON CONFLICT (path) DO UPDATE SET hash = excluded.hash, executable = excluded.executable, data = excluded.data,
        seq = excluded.seq;
