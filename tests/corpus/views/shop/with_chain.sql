WITH a AS (SELECT order_id, sum(qty) AS qty FROM items GROUP BY order_id),
     b AS (SELECT o.customer_id, sum(a.qty) AS qty FROM orders o JOIN a ON a.order_id = o.id GROUP BY o.customer_id)
SELECT c.id, c.name, b.qty FROM customers c LEFT JOIN b ON b.customer_id = c.id
