SELECT id, name FROM customers WHERE city <> ALL (SELECT kind FROM products)
