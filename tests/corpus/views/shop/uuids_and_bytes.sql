SELECT e.id, e.ref, e.data, f.id AS other FROM events e JOIN events f ON f.ref = e.ref AND f.id > e.id
