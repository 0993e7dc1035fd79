SELECT c.city, p.kind, count(*) AS n, sum(i.qty) AS qty, sum(i.qty * i.price) AS amount
FROM items i JOIN orders o ON o.id = i.order_id JOIN customers c ON c.id = o.customer_id JOIN products p ON p.sku = i.sku
GROUP BY c.city, p.kind
