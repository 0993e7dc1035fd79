(SELECT id FROM customers UNION SELECT customer_id FROM events) EXCEPT SELECT customer_id FROM orders
