SELECT city AS town, vip, sum(balance) AS balance FROM customers GROUP BY 1, 2
