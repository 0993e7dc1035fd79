SELECT c.id, c.name, p.name AS parent, g.name AS grandparent
FROM customers c LEFT JOIN customers p ON p.id = c.parent_id LEFT JOIN customers g ON g.id = p.parent_id
