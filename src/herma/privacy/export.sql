-- counted [postgres] --
-- Rows came with their own ids: the next one is above them.
INSERT INTO counters (name, last) VALUES (:name, :last)
    ON CONFLICT (name) DO UPDATE SET last = greatest(counters.last, excluded.last);
