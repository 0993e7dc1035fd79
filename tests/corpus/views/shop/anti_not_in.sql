SELECT p.sku, p.name FROM products p WHERE p.sku NOT IN (SELECT i.sku FROM items i WHERE i.sku IS NOT NULL)
