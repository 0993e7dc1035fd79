-- description: the lines of open orders with the products' names, a view over a view
-- sinks: delta, search
SELECT i.order_id, i.line, o.status, o.customer_id, p.sku, p.name AS product, i.quantity, i.unit_price
FROM order_items i
JOIN open_orders o ON o.id = i.order_id
JOIN products p ON p.id = i.product_id
