-- Format 2: where sessions took place, and what is learnt from them.

ALTER TABLE sessions ADD COLUMN provider TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN chat_type TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN folder TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN branch TEXT NOT NULL DEFAULT '';
