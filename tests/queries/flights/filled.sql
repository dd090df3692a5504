-- Conditions on a lookup table that a join fills with NULLs: a key narrows, it never replaces.
-- lookup: airlines, planes

-- case: a constant, before a FULL JOIN
-- once: airlines
SELECT l.name, count(f.flight) AS n FROM airlines l FULL JOIN first_day f ON l.carrier = f.carrier WHERE l.carrier = 'AA' GROUP BY l.name

-- case: a constant, before a RIGHT JOIN
-- once: airlines
SELECT l.carrier, f.flight FROM airlines l RIGHT JOIN first_day f ON l.carrier = f.carrier AND f.flight < 100 AND l.name < 'B' WHERE 'AA' = l.carrier

-- case: a constant, before a RIGHT JOIN with USING
-- once: airlines
SELECT l.name, f.flight FROM airlines l RIGHT JOIN first_day f USING (carrier) WHERE l.carrier = 'AA'

-- case: a constant for a column that is read nowhere else
-- once: airlines
SELECT count(*) AS n FROM airlines l FULL JOIN first_day f ON l.name < f.carrier WHERE l.carrier = 'AA'

-- case: a constant, in parentheses behind a LEFT JOIN
-- once: airlines
SELECT f.flight, l.name, a.faa FROM first_day f LEFT JOIN (airlines l LEFT JOIN airports a ON a.name = l.name) ON l.carrier = f.carrier WHERE l.carrier = 'AA'

-- case: a constant, before a comma and a RIGHT JOIN
-- once: airlines
SELECT l.name, a.faa, f.flight FROM airlines l, airports a RIGHT JOIN first_day f ON a.faa = f.dest AND l.carrier = f.carrier WHERE l.carrier = 'AA'

-- case: a constant, in a pipe
-- once: airlines
FROM airlines l FULL JOIN first_day f ON l.carrier = f.carrier |> WHERE l.carrier = 'AA' |> SELECT l.name, f.flight

-- case: a constant, in EXISTS
SELECT a.faa FROM airports a WHERE EXISTS (SELECT 1 FROM airlines l FULL JOIN first_day f ON l.carrier = f.carrier WHERE l.carrier = 'AA' AND f.dest = a.faa)

-- case: a constant, in NOT IN
SELECT a.faa FROM airports a WHERE a.faa NOT IN (SELECT f.dest FROM airlines l FULL JOIN first_day f ON l.carrier = f.carrier WHERE l.carrier = 'AA')

-- case: a constant, in a scalar subquery
SELECT a.faa, (SELECT count(*) FROM airlines l FULL JOIN first_day f ON l.carrier = f.carrier WHERE l.carrier = 'AA' AND f.dest = a.faa) AS n FROM airports a

-- case: a value of the outer query, which Spark allows under no FULL JOIN: the table is read
SELECT f.flight FROM first_day f WHERE f.flight < 50 AND EXISTS (SELECT 1 FROM airlines l FULL JOIN airports a ON l.name = a.name WHERE l.carrier = f.carrier)

-- case: a comma before a RIGHT JOIN is a join, too, where a hint wants it asked
SELECT /*+ LOOKUP('table'='p') */ f.flight, p.seats, a.faa FROM first_day f, planes p RIGHT JOIN airports a ON a.faa = f.dest AND p.tailnum = f.tailnum
-- refused:
The lookup join with p cannot run: a CROSS JOIN gives no key to ask for; write JOIN ... ON with an equality.
-- instead:
SELECT f.flight, p.seats, a.faa FROM first_day f JOIN planes p ON p.tailnum = f.tailnum RIGHT JOIN airports a ON a.faa = f.dest

-- case: a RIGHT JOIN behind a comma, with the lookup table between them
-- once: planes
SELECT f.flight, p.seats, a.faa FROM planes p, first_day f FULL JOIN airports a ON a.faa = f.dest AND f.hour < 8 WHERE p.tailnum = f.tailnum
