SELECT c.id FROM customers c WHERE c.parent_id NOT IN (SELECT e.amount FROM events e WHERE e.customer_id = c.id)
