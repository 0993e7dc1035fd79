SELECT order_id, string_agg(sku, ',' ORDER BY line) AS skus, string_agg(DISTINCT sku COLLATE "C", '|' ORDER BY sku COLLATE "C") AS kinds
FROM items GROUP BY order_id
