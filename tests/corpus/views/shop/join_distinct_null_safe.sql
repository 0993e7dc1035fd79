SELECT a.id AS one, b.id AS other FROM customers a JOIN customers b ON a.city IS NOT DISTINCT FROM b.city
WHERE a.id <> b.id
