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
-- What a killed process may have left half done: one at most, because whoever begins a change has settled those before it.
SELECT id, path, file, before_hash, after_hash, moved_from, moved_to
  FROM skill_changes
 WHERE state = 'open' AND profile = :profile
 ORDER BY id;

-- known_files --
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
-- Where what lies in the archive came from: folder there → folder before, newest last.
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

-- decide --
UPDATE skill_inbox SET decision = :decision, decided = :now WHERE id = :id;

-- usage --
SELECT name, uses, views, successes, failures, patches, created, last_used, last_viewed, last_patched, state, pinned, origin, source,
       vouched, archived_at
  FROM skill_usage
 WHERE profile = :profile AND (:name IS NULL OR name = :name);

-- count --
-- A skill that is used again is active again; deprecated and archived are for a person or the curator to lift. Reading a skill counts as a
-- use; when its outcome is recorded later (resolves), that is the same use. An outcome that is taken back is less than 0.
INSERT INTO skill_usage (profile, name, uses, views, successes, failures, patches, created, last_used, last_viewed, last_patched)
VALUES (:profile, :name, :uses, :views, max(0, :successes), max(0, :failures), :patches, :at, iif(:uses, :at, NULL), iif(:views, :at, NULL),
        iif(:patches, :at, NULL))
    ON CONFLICT (profile, name) DO UPDATE
   SET uses = uses + iif(:resolves AND last_used <= last_viewed, 0, :uses), views = views + :views,
       successes = max(0, successes + :successes), failures = max(0, failures + :failures),
       patches = patches + :patches,
       last_used = iif(:uses, max(coalesce(last_used, 0), :at), last_used),
       last_viewed = iif(:views, max(coalesce(last_viewed, 0), :at), last_viewed),
       last_patched = iif(:patches, max(coalesce(last_patched, 0), :at), last_patched),
       state = iif(state = 'stale' AND (:uses OR :patches), 'active', state);

-- put_usage --
INSERT INTO skill_usage (profile, name, created, state, pinned, origin, source, vouched, archived_at)
VALUES (:profile, :name, :created, :state, :pinned, :origin, :source, :vouched, :archived_at)
    ON CONFLICT (profile, name) DO UPDATE
   SET created = excluded.created, state = excluded.state, pinned = excluded.pinned, origin = excluded.origin,
       source = excluded.source, vouched = excluded.vouched, archived_at = excluded.archived_at;

-- set_state --
INSERT INTO skill_usage (profile, name, created, state, archived_at)
VALUES (:profile, :name, :at, :state, iif(:state = 'archived', :at, NULL))
    ON CONFLICT (profile, name) DO UPDATE SET state = excluded.state, archived_at = excluded.archived_at;
