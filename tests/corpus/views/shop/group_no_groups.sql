SELECT count(*) AS n, sum(total) AS total, max(placed) AS last FROM orders WHERE status = 'paid'
