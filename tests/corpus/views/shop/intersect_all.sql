-- key: customer_id, n
SELECT customer_id, count(*) AS n FROM (SELECT customer_id FROM orders INTERSECT ALL SELECT customer_id FROM events) x GROUP BY customer_id
