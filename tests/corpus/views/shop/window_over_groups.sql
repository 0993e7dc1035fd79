SELECT customer_id, status, n, rank() OVER (PARTITION BY status ORDER BY n DESC) AS place FROM (
    SELECT customer_id, status, count(*) AS n FROM orders GROUP BY customer_id, status) x
