SELECT customer_id, min(kind COLLATE "C") AS first_kind, max(kind COLLATE "C") AS last_kind FROM events GROUP BY customer_id
