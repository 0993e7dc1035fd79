SELECT customer_id, sum(total) AS total FROM orders GROUP BY customer_id
HAVING sum(total) > (SELECT min(balance) FROM customers)
