SELECT c.id, c.name, sum(b.total) AS total, count(*) AS n FROM views_base b JOIN customers c ON c.id = b.customer_id GROUP BY c.id
