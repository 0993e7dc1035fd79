SELECT DISTINCT coalesce(city, 'none') AS city, vip IS TRUE AS vip FROM customers
