SELECT c.id, c.joined + 30 AS trial_end, c.joined - 1 AS eve, o.placed::date - c.joined AS days, o.id AS order_id
FROM customers c JOIN orders o ON o.customer_id = c.id
