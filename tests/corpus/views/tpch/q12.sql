SELECT l_shipmode::text AS l_shipmode,
    sum(CASE WHEN o_orderpriority::text = '1-URGENT' OR o_orderpriority::text = '2-HIGH' THEN 1 ELSE 0 END) AS high_line_count,
    sum(CASE WHEN o_orderpriority::text <> '1-URGENT' AND o_orderpriority::text <> '2-HIGH' THEN 1 ELSE 0 END) AS low_line_count
FROM orders, lineitem
WHERE o_orderkey = l_orderkey AND l_shipmode::text IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate
    AND l_shipdate < l_commitdate AND l_receiptdate >= date '1993-01-01'
    AND l_receiptdate < date '1993-01-01' + interval '4' year
GROUP BY l_shipmode::text
