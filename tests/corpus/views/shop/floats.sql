SELECT o.id, o.weight, c.name FROM orders o JOIN customers c ON c.id = o.customer_id WHERE o.weight > 0.5 OR o.weight IS NULL
