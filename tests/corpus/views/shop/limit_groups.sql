SELECT customer_id, sum(total) AS total FROM orders GROUP BY customer_id ORDER BY total DESC NULLS LAST, customer_id LIMIT 2 OFFSET 1
