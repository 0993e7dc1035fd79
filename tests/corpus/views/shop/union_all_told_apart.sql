SELECT 'order' AS source, id, customer_id FROM orders UNION ALL SELECT 'event', id, customer_id FROM events
