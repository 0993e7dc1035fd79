SELECT o.id, o.status, c.name, coalesce(c.city, '?') AS city
FROM orders o LEFT JOIN customers c ON c.id = o.customer_id
