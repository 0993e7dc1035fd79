SELECT id, total FROM orders WHERE id IN (SELECT order_id FROM items GROUP BY order_id HAVING sum(qty) > 3)
