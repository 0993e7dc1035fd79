SELECT n, count(*) AS customers FROM (SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id) x GROUP BY n
