SELECT o.id, o.status, c.name, c.city FROM orders o JOIN customers c ON c.id = o.customer_id
