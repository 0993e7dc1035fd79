SELECT DISTINCT ON (customer_id) customer_id, id, total, status FROM orders ORDER BY customer_id, total DESC, id
