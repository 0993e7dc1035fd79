SELECT id, customer_id IN (SELECT id FROM customers WHERE vip) AS vip FROM orders
