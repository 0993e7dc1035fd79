SELECT kind, ok, round(sum(amount) * 1.0 / nullif(count(amount), 0), 3) AS mean, coalesce(sum(amount), 0) AS amount, max(amount) - min(amount) AS spread
FROM events GROUP BY kind, ok
