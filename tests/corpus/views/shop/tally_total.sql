SELECT count(amount) AS n, sum(amount) AS amount, min(amount) AS least, max(at) AS last, avg(amount) AS mean, bool_and(ok) AS all_ok FROM events
