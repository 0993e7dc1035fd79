SELECT kind, amount FROM events WHERE ok EXCEPT SELECT kind, amount FROM events WHERE NOT ok
