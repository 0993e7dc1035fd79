SELECT id, total, rank() OVER (ORDER BY total DESC NULLS LAST) AS place FROM views_on_view
