SELECT extract(year FROM joined) AS year, count(*) AS n FROM customers GROUP BY 1
