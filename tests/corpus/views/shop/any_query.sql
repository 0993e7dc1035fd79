SELECT id, total FROM orders WHERE customer_id = ANY (SELECT customer_id FROM events WHERE kind = 'click')
