SELECT o.id, count(i.line) AS lines, sum(i.qty) AS qty FROM orders o LEFT JOIN items i ON i.order_id = o.id GROUP BY o.id
