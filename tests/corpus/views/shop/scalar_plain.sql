SELECT id, total FROM orders WHERE total >= (SELECT max(total) FROM orders WHERE status = 'paid')
