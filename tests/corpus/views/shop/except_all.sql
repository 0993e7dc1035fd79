SELECT customer_id, count(*) AS n FROM (SELECT customer_id FROM events EXCEPT ALL SELECT customer_id FROM orders) x GROUP BY customer_id
