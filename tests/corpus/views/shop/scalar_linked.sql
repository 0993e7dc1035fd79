SELECT c.id, c.name, (SELECT count(*) FROM orders o WHERE o.customer_id = c.id) AS n,
    (SELECT max(o.total) FROM orders o WHERE o.customer_id = c.id AND o.status = 'paid') AS best FROM customers c
