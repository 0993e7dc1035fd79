SELECT 1 AS k, id::bigint AS id, balance AS amount FROM customers UNION ALL SELECT 2, id, total FROM orders
