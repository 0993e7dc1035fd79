SELECT customer_id, sum(CASE WHEN ok THEN amount ELSE 0 END) AS good, sum(CASE WHEN ok THEN 0 ELSE amount END) AS bad
FROM events GROUP BY customer_id
