SELECT a.customer_id, count(*) AS pairs, sum(b.total) AS total, min(b.placed) AS first
FROM orders a JOIN orders b ON b.customer_id = a.customer_id AND b.id <> a.id GROUP BY a.customer_id
