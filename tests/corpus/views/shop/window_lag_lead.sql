SELECT id, kind, lag(amount) OVER w AS before, lead(amount, 2) OVER w AS later, lag(ok, 1, false) OVER w AS was_ok,
    amount - lag(amount) OVER w AS step FROM events WINDOW w AS (PARTITION BY kind ORDER BY id)
