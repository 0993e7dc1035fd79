SELECT o.id, extract(year FROM o.placed) AS year, extract(month FROM o.placed) AS month, extract(dow FROM o.placed) AS dow,
    date_trunc('day', o.placed) AS day, date_trunc('week', o.placed) AS week, extract(day FROM c.joined) AS day_of_month
FROM orders o JOIN customers c ON c.id = o.customer_id
