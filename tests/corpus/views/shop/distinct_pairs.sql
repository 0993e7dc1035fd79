SELECT DISTINCT o.status, c.city FROM orders o JOIN customers c ON c.id = o.customer_id
