-- description: how much each customer has ordered, from two tables; refreshed for the customers that a batch touches
-- sinks: delta, cache
SELECT c.id AS customer_id, c.name, count(o.id) AS orders, sum(o.total) AS total, max(o.placed_at) AS last_order
FROM customers c
LEFT JOIN orders o ON o.customer_id = c.id AND o.status <> 'cancelled'
GROUP BY c.id, c.name
