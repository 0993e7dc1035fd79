SELECT id, status FROM orders WHERE customer_id IN (SELECT id FROM customers WHERE vip)
