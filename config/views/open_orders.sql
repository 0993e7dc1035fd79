-- description: orders that still have to leave the house, everywhere they are asked for
-- sinks: delta, search, cache
-- cache.value: hash
SELECT id, customer_id, status, total, coalesce(note, '-') AS note, placed_at, ship_on
FROM orders
WHERE status IN ('placed', 'paid')
