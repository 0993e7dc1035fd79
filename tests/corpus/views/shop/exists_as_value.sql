SELECT c.id, EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id) AS buys,
    NOT EXISTS (SELECT 1 FROM events e WHERE e.customer_id = c.id AND e.amount > 2) AS calm FROM customers c
