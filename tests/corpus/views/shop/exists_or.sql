SELECT c.id, c.name FROM customers c
WHERE c.vip OR EXISTS (SELECT 1 FROM events e WHERE e.customer_id = c.id AND e.ok)
