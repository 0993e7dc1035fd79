SELECT o.id, o.total FROM orders o WHERE EXISTS (
    SELECT 1 FROM orders b WHERE b.customer_id = o.customer_id AND b.id <> o.id)
