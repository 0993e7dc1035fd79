SELECT status, count(*) AS n, count(note) AS noted, count(DISTINCT customer_id) AS customers FROM orders GROUP BY status
