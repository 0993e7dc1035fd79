SELECT DISTINCT ON (kind, amount % 2) kind, amount % 2 AS odd, id, at FROM events ORDER BY kind, amount % 2, at DESC NULLS LAST, id
