SELECT customer_id, max(total) AS best FROM orders GROUP BY customer_id HAVING max(total) > avg(total) * 1.1
