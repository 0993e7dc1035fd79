SELECT i.order_id, i.line, i.qty / 2 AS half, i.qty % 2 AS odd, i.qty * i.price * (1 - i.discount) AS net,
    round(i.price * 1.19, 2) AS gross, p.price - i.price AS difference, abs(p.stock - i.qty) AS gap, i.price / i.qty AS piece
FROM items i LEFT JOIN products p ON p.sku = i.sku WHERE i.qty <> 0
