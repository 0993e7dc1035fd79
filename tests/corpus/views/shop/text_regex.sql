SELECT o.id, o.note ~ '^[a-c]+' AS starts, c.name !~ '[0-9]' AS wordy
FROM orders o LEFT JOIN customers c ON c.id = o.customer_id
