SELECT c.id, o.id AS order_id, i.line
FROM customers c LEFT JOIN (orders o JOIN items i ON i.order_id = o.id) ON o.customer_id = c.id AND i.qty > 1
