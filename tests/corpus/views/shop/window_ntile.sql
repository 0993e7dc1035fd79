SELECT id, ntile(3) OVER (PARTITION BY ok ORDER BY amount DESC, id) AS third FROM events
