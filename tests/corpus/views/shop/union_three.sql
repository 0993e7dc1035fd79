SELECT city AS word FROM customers UNION SELECT status FROM orders UNION SELECT kind FROM products
