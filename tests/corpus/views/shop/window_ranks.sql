SELECT id, kind, rank() OVER w AS rank, dense_rank() OVER w AS dense, percent_rank() OVER w AS percent, cume_dist() OVER w AS share
FROM events WINDOW w AS (PARTITION BY kind ORDER BY amount)
