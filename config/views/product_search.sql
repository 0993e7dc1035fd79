-- description: what the shop's search box looks through
-- sinks: search
SELECT id, sku, name, description, price, stock > 0 AS in_stock, weight_kg
FROM products
WHERE active
