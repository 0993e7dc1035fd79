SELECT id, customer_id, total, max(total) OVER (PARTITION BY customer_id) AS best, total = max(total) OVER (PARTITION BY customer_id) AS is_best
FROM orders
