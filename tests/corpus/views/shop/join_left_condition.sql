SELECT c.id, c.name, o.id AS order_id, o.total
FROM customers c LEFT JOIN orders o ON o.customer_id = c.id AND o.status = 'paid' AND o.total > 10
