SELECT c.id, p.sku FROM customers c CROSS JOIN products p WHERE c.vip
