SELECT c.city, max(v.total) AS best, count(*) AS n FROM views_on_view v JOIN customers c USING (id) GROUP BY c.city
