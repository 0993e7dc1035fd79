SELECT sku FROM items GROUP BY sku HAVING max(qty) > 2
