SELECT a.id AS one, b.id AS other FROM events a JOIN events b ON a.amount = b.amount + 1 AND a.kind = b.kind
