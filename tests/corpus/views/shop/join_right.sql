SELECT i.order_id, i.line, p.sku, p.name FROM items i RIGHT JOIN products p ON p.sku = i.sku
