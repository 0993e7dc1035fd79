SELECT p.sku FROM products p WHERE EXISTS (
    SELECT 1 FROM items i JOIN orders o ON o.id = i.order_id WHERE i.sku = p.sku AND o.status <> 'new')
