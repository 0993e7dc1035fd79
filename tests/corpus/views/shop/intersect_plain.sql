SELECT customer_id FROM orders INTERSECT SELECT customer_id FROM events
