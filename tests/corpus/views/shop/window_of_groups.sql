SELECT customer_id, count(*) AS n, sum(count(*)) OVER (ORDER BY customer_id) AS running FROM orders GROUP BY customer_id
