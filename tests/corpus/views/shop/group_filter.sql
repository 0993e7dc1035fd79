SELECT customer_id, count(*) FILTER (WHERE status = 'paid') AS paid, sum(total) FILTER (WHERE total > 20) AS large,
    count(*) FILTER (WHERE note IS NULL) AS silent FROM orders GROUP BY customer_id
