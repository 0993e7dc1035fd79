SELECT c.id, o.id AS order_id, i.line, i.sku
FROM customers c LEFT JOIN orders o ON o.customer_id = c.id LEFT JOIN items i ON i.order_id = o.id
