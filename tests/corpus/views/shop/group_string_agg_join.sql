SELECT c.id, string_agg(o.status, '; ' ORDER BY o.total DESC, o.id) AS states
FROM customers c JOIN orders o ON o.customer_id = c.id GROUP BY c.id
