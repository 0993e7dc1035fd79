SELECT c.id, c.name, a.mean, a.mean * 2 > c.balance AS low FROM customers c JOIN views_average a ON a.customer_id = c.id
