SELECT id, o.total, n FROM orders o JOIN (SELECT order_id AS id, count(*) AS n FROM items GROUP BY order_id) i USING (id)
