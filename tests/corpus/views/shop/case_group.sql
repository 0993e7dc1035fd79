SELECT CASE WHEN total > 30 THEN 'large' WHEN total > 10 THEN 'medium' ELSE 'small' END AS size, count(*) AS n FROM orders GROUP BY 1
