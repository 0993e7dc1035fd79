-- description: the three products that sell best in each country
-- key: country, place
SELECT country, place, product_id, pieces
FROM (
    SELECT country, product_id, pieces, row_number() OVER (PARTITION BY country ORDER BY pieces DESC, product_id) AS place
    FROM (
        SELECT c.country, i.product_id, sum(i.quantity) AS pieces
        FROM order_items i
        JOIN orders o ON o.id = i.order_id
        JOIN customers c ON c.id = o.customer_id
        GROUP BY c.country, i.product_id
    ) sold
) ranked
WHERE place <= 3
