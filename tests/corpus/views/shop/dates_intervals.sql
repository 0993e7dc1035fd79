SELECT c.id, c.joined + INTERVAL '1 month' AS month, c.joined - INTERVAL '1 year' AS year, o.id AS order_id,
    o.placed + INTERVAL '90 minutes' AS later, o.paid_at - INTERVAL '1 hour' AS earlier
FROM customers c JOIN orders o ON o.customer_id = c.id WHERE o.placed < c.joined + INTERVAL '5 years'
