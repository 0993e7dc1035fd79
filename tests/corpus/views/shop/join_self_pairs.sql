SELECT a.id AS one, b.id AS other, a.city
FROM customers a JOIN customers b ON a.city = b.city AND a.id < b.id
