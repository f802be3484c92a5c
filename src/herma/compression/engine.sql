-- tries --
SELECT failures, not_before, ineffective FROM compression_tries WHERE conversation = :conversation;

-- remember --
INSERT INTO compression_tries (conversation, failures, not_before, ineffective)
VALUES (:conversation, :failures, :not_before, :ineffective)
ON CONFLICT (conversation) DO UPDATE
   SET failures = excluded.failures, not_before = excluded.not_before, ineffective = excluded.ineffective;
