SELECT DISTINCT city FROM customers
