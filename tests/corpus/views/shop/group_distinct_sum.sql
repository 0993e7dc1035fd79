SELECT kind, sum(DISTINCT amount) AS amounts, count(DISTINCT ok) AS oks FROM events GROUP BY kind
