-- 60,500 rows, the same on every machine.
INSERT INTO customers
SELECT g, 'user' || g || '@example.com', 'Customer ' || g, (ARRAY['DE', 'FR', 'IT', 'ES', 'PL', 'SE'])[1 + g % 6],
       g % 3 = 0, (g % 1000) / 4.0, '2024-01-01 00:00:00+00'::timestamptz + g * interval '97 minutes 13.25 seconds'
FROM generate_series(1, 8000) g;

INSERT INTO products
SELECT g, 'SKU-' || lpad(g::text, 6, '0'), (ARRAY['Lamp', 'Chair', 'Table', 'Vase', 'Rug'])[1 + g % 5] || ' No. ' || g,
       CASE WHEN g % 7 = 0 THEN NULL ELSE repeat('Made with care, item ' || g || '. ', 1 + g % 20) END,
       5 + (g * 37 % 5000) / 100.0, g * 13 % 500, g % 11 <> 0,
       CASE WHEN g % 4 = 0 THEN ARRAY['new', 'sale'] WHEN g % 4 = 1 THEN ARRAY[NULL, 'a "quoted" tag'] END,
       jsonb_build_object('colour', (ARRAY['red', 'green', 'blue'])[1 + g % 3], 'rank', g % 10),
       CASE WHEN g % 5 > 0 THEN g / 7.0 END
FROM generate_series(1, 500) g;

INSERT INTO orders
SELECT g, 1 + g * 7919 % 8000, (ARRAY['placed', 'paid', 'shipped', 'cancelled'])[1 + g % 4], 0,
       CASE WHEN g % 9 = 0 THEN 'leave at the door' END,
       '2025-01-01 00:00:00+00'::timestamptz + g * interval '41 minutes', '2025-01-02'::date + (g / 36)
FROM generate_series(1, 12000) g;

INSERT INTO order_items
SELECT o, l, 1 + (o * 31 + l * 17) % 500, 1 + (o + l) % 4, 5 + ((1 + (o * 31 + l * 17) % 500) * 37 % 5000) / 100.0
FROM generate_series(1, 12000) o, generate_series(1, 1 + o % 4) l;

UPDATE orders SET total = t.total
FROM (SELECT order_id, sum(quantity * unit_price) AS total FROM order_items GROUP BY order_id) t WHERE t.order_id = orders.id;

INSERT INTO payments
SELECT md5('payment ' || id)::uuid, id, (ARRAY['card', 'transfer', 'voucher'])[1 + id % 3], total,
       placed_at::timestamp + interval '3 minutes 0.000001 seconds', decode(md5(id::text), 'hex')
FROM orders WHERE id % 6 <> 5;
ANALYZE;
