SELECT i.order_id, sum(i.qty * i.price) / sum(i.qty) AS per_piece, round(100.0 * sum(i.qty) / count(*), 2) AS percent
FROM items i WHERE i.qty > 0 GROUP BY i.order_id
