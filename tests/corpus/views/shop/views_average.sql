SELECT customer_id, avg(total) AS mean FROM views_base GROUP BY customer_id
