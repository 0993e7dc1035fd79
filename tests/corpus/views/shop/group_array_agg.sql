SELECT customer_id, array_agg(id ORDER BY id) AS ids, array_agg(status ORDER BY id DESC) AS states,
    array_agg(total ORDER BY total, id) AS totals FROM orders GROUP BY customer_id
