SELECT i.order_id, i.line, o.status, c.name, i.qty * i.price AS amount
FROM items i JOIN orders o ON o.id = i.order_id JOIN customers c ON c.id = o.customer_id
WHERE i.qty > 0
