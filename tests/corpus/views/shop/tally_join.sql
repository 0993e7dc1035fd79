SELECT c.city, count(*) AS n, count(o.total) AS counted, sum(o.total) AS total, avg(o.total) AS mean, max(o.total) AS best
FROM orders o JOIN customers c ON c.id = o.customer_id WHERE o.status <> 'new' GROUP BY c.city
