SELECT id, total FROM orders ORDER BY total DESC NULLS LAST, id LIMIT 3
