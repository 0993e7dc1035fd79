SELECT customer_id, bool_and(ok) AS all_ok, bool_or(ok) AS any_ok, every(amount > 0) AS positive FROM events GROUP BY customer_id
