WITH spend AS (
    SELECT c.id, c.city, coalesce(sum(i.qty * i.price), 0.00) AS amount
    FROM customers c LEFT JOIN orders o ON o.customer_id = c.id AND o.status <> 'new' LEFT JOIN items i ON i.order_id = o.id
    GROUP BY c.id, c.city)
SELECT s.id, s.city, s.amount, s.place FROM (
    SELECT id, city, amount, rank() OVER (PARTITION BY city ORDER BY amount DESC) AS place FROM spend) s
WHERE s.place <= 3 AND NOT EXISTS (SELECT 1 FROM events e WHERE e.customer_id = s.id AND NOT e.ok)
