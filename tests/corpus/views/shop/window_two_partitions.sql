SELECT id, rank() OVER (PARTITION BY kind ORDER BY amount) AS by_kind, rank() OVER (PARTITION BY customer_id ORDER BY amount) AS by_customer
FROM events
