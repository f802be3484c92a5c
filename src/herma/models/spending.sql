-- reserve --
INSERT INTO spending (day, at, purpose, model, settled, tokens, usd, input, output, cache_read, cache_write, reasoning)
VALUES (:day, :at, :purpose, :model, FALSE, :tokens, :usd, 0, 0, 0, 0, 0)
RETURNING id;

-- settle --
UPDATE spending
   SET settled = TRUE, tokens = :tokens, usd = :usd, input = :input, output = :output, cache_read = :cache_read,
       cache_write = :cache_write, reasoning = :reasoning, estimated = :estimated
 WHERE id = :id;

-- by_purpose --
SELECT purpose, count(*), sum(tokens), coalesce(sum(usd), 0.0), sum(usd IS NULL), sum(NOT settled), sum(estimated)
  FROM spending
 WHERE day BETWEEN :first AND :last
 GROUP BY purpose
 ORDER BY purpose;

-- by_day --
SELECT day, count(*), sum(tokens), coalesce(sum(usd), 0.0), sum(usd IS NULL), sum(NOT settled), sum(estimated)
  FROM spending
 WHERE day BETWEEN :first AND :last
 GROUP BY day
 ORDER BY day;

-- newest --
-- Numbers are given in the order of the calls.
SELECT at, purpose, model, settled, tokens, usd, input, output, cache_read, cache_write, reasoning, estimated
  FROM spending
 ORDER BY id DESC
 LIMIT :limit;

-- days --
SELECT DISTINCT day FROM spending ORDER BY day;
