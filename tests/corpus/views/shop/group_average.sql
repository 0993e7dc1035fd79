SELECT customer_id, avg(total) AS mean, avg(id) AS mean_id, round(avg(total), 2) AS rounded, avg(total)::numeric(12,4) AS cast_mean
FROM orders GROUP BY customer_id
