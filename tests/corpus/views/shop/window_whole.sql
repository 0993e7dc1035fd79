SELECT id, total, count(*) OVER () AS n, sum(total) OVER (ORDER BY id) AS running FROM orders
