"""Background work, in process: one worker per opened memory."""
