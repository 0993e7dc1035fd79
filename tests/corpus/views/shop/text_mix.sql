SELECT o.id, upper(o.status COLLATE "C") || '-' || coalesce(c.city, '') AS label, left(c.name, 3) AS short, length(c.name) AS n,
    split_part(c.name, ' ', 1) AS first, replace(o.note, 'a', '') AS note, o.note LIKE '%x%' AS has_x, md5(c.name) AS digest
FROM orders o LEFT JOIN customers c ON c.id = o.customer_id
