SELECT id, customer_id, first_value(status) OVER (PARTITION BY customer_id ORDER BY id) AS first,
    last_value(status) OVER (PARTITION BY customer_id ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS last,
    nth_value(total, 2) OVER (PARTITION BY customer_id ORDER BY id) AS second FROM orders
