-- key: sku, order_id, line
SELECT sku, i.order_id, i.line, p.kind FROM items i FULL JOIN products p USING (sku)
