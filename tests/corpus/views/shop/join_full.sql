SELECT o.id, c.id AS customer, o.status, c.name
FROM orders o FULL JOIN customers c ON c.id = o.customer_id
