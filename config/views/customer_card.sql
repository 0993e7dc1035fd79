-- description: a customer as the web pages need it, by key from the cache
-- sinks: cache
SELECT id AS customer_id, name, lower(country COLLATE "C") AS country, newsletter, credit
FROM customers
