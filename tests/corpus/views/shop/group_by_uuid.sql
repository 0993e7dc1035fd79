SELECT ref, count(*) AS n, count(DISTINCT data) AS kinds FROM events GROUP BY ref
