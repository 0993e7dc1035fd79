SELECT sku, name FROM products WHERE EXISTS (SELECT 1 FROM orders WHERE status = 'paid' AND total > 40)
