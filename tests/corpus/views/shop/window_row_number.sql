SELECT id, customer_id, row_number() OVER (PARTITION BY customer_id ORDER BY total DESC, id) AS place FROM orders
