SELECT id, total FROM orders WHERE total > (SELECT avg(total) FROM orders)
