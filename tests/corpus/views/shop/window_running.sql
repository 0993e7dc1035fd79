SELECT id, customer_id, sum(total) OVER (PARTITION BY customer_id ORDER BY id) AS so_far,
    count(*) OVER (PARTITION BY customer_id ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS near FROM orders
