SELECT i.order_id, i.line, c.id AS customer, p.kind, p.name
FROM customers c, orders o, items i, products p
WHERE o.customer_id = c.id AND i.order_id = o.id AND p.sku = i.sku AND (c.vip OR p.kind = 'book')
