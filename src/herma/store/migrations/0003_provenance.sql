-- Format 3: which text of a message or prompt came from outside, and which sessions were imported;
-- of each call to a model, where it was made and whether a reply came.

ALTER TABLE sessions ADD COLUMN imported REAL;
ALTER TABLE sessions ADD COLUMN prompt_outside TEXT;
ALTER TABLE messages ADD COLUMN outside TEXT;
ALTER TABLE calls ADD COLUMN provider TEXT NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN folder TEXT NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN branch TEXT NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN answered INTEGER NOT NULL DEFAULT 1;
ALTER TABLE spending ADD COLUMN estimated INTEGER NOT NULL DEFAULT 0;
CREATE INDEX curated_inbox_rejected ON curated_inbox (profile, user, target) WHERE decision = 'rejected';

-- A program that brought sessions in from elsewhere named their source "import"; no time in them is later than now.
UPDATE sessions
   SET imported = min(last_active, CAST(strftime('%s', 'now') AS REAL)),
       started = min(started, CAST(strftime('%s', 'now') AS REAL)),
       last_active = min(last_active, CAST(strftime('%s', 'now') AS REAL))
 WHERE source = 'import';
