SELECT e.id, e.kind FROM events e WHERE (e.kind, e.amount) IN (SELECT kind, amount FROM events WHERE ok)
