SELECT c.id, (SELECT o.status FROM orders o WHERE o.customer_id = c.id ORDER BY o.id DESC LIMIT 1) AS last_status FROM customers c
