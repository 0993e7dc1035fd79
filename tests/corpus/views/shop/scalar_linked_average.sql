SELECT o.id, o.total FROM orders o WHERE o.total > (SELECT avg(b.total) FROM orders b WHERE b.customer_id = o.customer_id)
