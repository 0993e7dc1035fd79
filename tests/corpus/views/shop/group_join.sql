SELECT c.id, c.name, count(o.id) AS n, coalesce(sum(o.total), 0.00) AS total
FROM customers c LEFT JOIN orders o ON o.customer_id = c.id GROUP BY c.id
