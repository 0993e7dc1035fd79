SELECT customer_id AS id FROM orders UNION SELECT customer_id FROM events
