-- insert --
INSERT INTO calls (session, at, model, messages, last_message, tools, prompt, reusable, fresh, output, reason, at_message, idle,
                   counts, naive_reusable, naive_fresh, cost_usd, provider, folder, branch, answered)
VALUES (:session, :at, :model, :messages, :last_message, :tools, :prompt, :reusable, :fresh, :output, :reason, :at_message, :idle,
        :counts, :naive_reusable, :naive_fresh, :cost_usd, :provider, :folder, :branch, :answered);

-- columns --
-- How every query here reads a call.
SELECT c.session, c.at, c.reusable, c.fresh, c.reason, c.naive_reusable, c.naive_fresh, c.output, c.model, c.at_message,
       c.idle, c.counts, c.cost_usd, c.messages, c.last_message, c.tools, c.prompt, c.provider, c.folder, c.branch,
       c.answered, c.id
  FROM calls c

-- last --
 WHERE c.session = ANY(:sessions) ORDER BY c.id DESC LIMIT 1;

-- newest --
 WHERE c.at >= :since AND (NOT :breaks OR c.reason <> ALL(:whole))
 ORDER BY c.at DESC, c.id DESC LIMIT :limit;

-- newest_of --
 WHERE c.session = ANY(:sessions) AND c.at >= :since
   AND (NOT :breaks OR c.reason <> ALL(:whole))
 ORDER BY c.at DESC, c.id DESC LIMIT :limit;

-- sums --
SELECT c.session, c.model, c.reason, c.counts, c.cost_usd IS NOT NULL AS paid, count(*), sum(c.reusable), sum(c.fresh),
       sum(c.output), sum(c.naive_reusable), sum(c.naive_fresh), coalesce(sum(c.cost_usd), 0.0), min(c.at), max(c.at),
       sum(NOT c.answered)
  FROM calls c
 WHERE c.at >= :since
 GROUP BY c.session, c.model, c.reason, c.counts, paid;

-- sums_of --
SELECT c.session, c.model, c.reason, c.counts, c.cost_usd IS NOT NULL AS paid, count(*), sum(c.reusable), sum(c.fresh),
       sum(c.output), sum(c.naive_reusable), sum(c.naive_fresh), coalesce(sum(c.cost_usd), 0.0), min(c.at), max(c.at),
       sum(NOT c.answered)
  FROM calls c
 WHERE c.session = ANY(:sessions) AND c.at >= :since
 GROUP BY c.session, c.model, c.reason, c.counts, paid;
