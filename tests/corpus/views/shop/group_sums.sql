SELECT customer_id, sum(total) AS total, sum(id) AS ids, min(total) AS least, max(placed) AS last, min(paid_at) AS first
FROM orders GROUP BY customer_id
