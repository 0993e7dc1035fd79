SELECT id FROM orders WHERE status = 'new' OR customer_id IN (SELECT customer_id FROM events WHERE ok)
