SELECT id, customer_id, round(avg(total) OVER (PARTITION BY customer_id ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW), 2) AS mean
FROM orders
