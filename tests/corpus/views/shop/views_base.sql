SELECT id, customer_id, total, status FROM orders WHERE status IN ('paid', 'sent')
