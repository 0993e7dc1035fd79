WITH paid AS (SELECT customer_id, sum(total) AS total FROM orders WHERE status = 'paid' GROUP BY customer_id)
SELECT p.customer_id, p.total, c.name FROM paid p JOIN customers c ON c.id = p.customer_id
WHERE p.total >= (SELECT max(total) FROM paid)
