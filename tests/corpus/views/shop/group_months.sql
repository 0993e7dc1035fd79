SELECT date_trunc('month', placed) AS month, count(*) AS n, sum(total) AS total FROM orders GROUP BY 1
