SELECT customer_id, id, total, place FROM (
    SELECT customer_id, id, total, row_number() OVER (PARTITION BY customer_id ORDER BY total DESC NULLS LAST, id) AS place FROM orders) x
WHERE place <= 2
