SELECT o.id, p.sku, o.total - p.price AS left_over FROM orders o JOIN products p ON p.price < o.total AND p.kind = 'book'
