SELECT at::date AS day, kind, count(*) AS n FROM events GROUP BY at::date, kind
