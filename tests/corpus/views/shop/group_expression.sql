SELECT amount % 3 AS remainder, ok, count(*) AS n FROM events GROUP BY amount % 3, ok
