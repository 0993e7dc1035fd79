SELECT c.id, c.name, t.id AS order_id, t.total FROM customers c JOIN (
    SELECT id, customer_id, total FROM orders ORDER BY total DESC NULLS LAST, id LIMIT 4) t ON t.customer_id = c.id AND t.total IS NOT NULL
