SELECT o.id, CASE WHEN o.total IS NULL THEN 'none' WHEN o.total > 30 THEN 'large' ELSE 'small' END AS size,
    CASE c.vip WHEN TRUE THEN coalesce(c.city, 'somewhere') ELSE 'n/a' END AS place, nullif(o.status, 'new') AS state,
    greatest(o.total, c.balance) AS more, least(o.placed, o.placed) AS day
FROM orders o LEFT JOIN customers c ON c.id = o.customer_id
