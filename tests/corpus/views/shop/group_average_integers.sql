SELECT kind, avg(amount) AS mean, avg(DISTINCT amount) AS mean_distinct, avg(amount) FILTER (WHERE ok) AS good FROM events GROUP BY kind
