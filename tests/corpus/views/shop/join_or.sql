SELECT c.id, o.id AS order_id FROM customers c JOIN orders o ON o.customer_id = c.id OR o.customer_id = c.parent_id
