-- lookup: planes, airlines

-- case: a scalar subquery over the lookup table in SELECT
SELECT f.flight, (SELECT p.seats FROM planes p WHERE p.tailnum = f.tailnum) AS seats FROM flights f

-- case: a scalar subquery with an aggregate
SELECT f.flight, (SELECT max(p.seats) FROM planes p WHERE p.tailnum = f.tailnum) AS seats FROM flights f

-- case: a scalar subquery that counts
SELECT f.flight, (SELECT count(*) FROM planes p WHERE p.tailnum = f.tailnum AND p.seats > 100) AS n FROM flights f

-- case: a scalar subquery in WHERE
SELECT f.flight FROM flights f WHERE (SELECT p.seats FROM planes p WHERE p.tailnum = f.tailnum) > 200

-- case: a scalar subquery in an expression
SELECT f.flight, coalesce((SELECT p.seats FROM planes p WHERE p.tailnum = f.tailnum), 0) + 1 AS seats FROM flights f

-- case: a scalar subquery inside an aggregate
SELECT f.carrier, sum((SELECT p.seats FROM planes p WHERE p.tailnum = f.tailnum)) AS seats FROM flights f GROUP BY f.carrier

-- case: two scalar subqueries over one row
SELECT f.flight, (SELECT p.seats FROM planes p WHERE p.tailnum = f.tailnum) AS seats, (SELECT p.model FROM planes p WHERE p.tailnum = f.tailnum) AS model FROM flights f

-- case: an uncorrelated scalar subquery with a lookup join inside
SELECT f.flight FROM flights f WHERE f.distance > (SELECT avg(x.distance) FROM flights x JOIN planes p ON p.tailnum = x.tailnum WHERE p.seats > 200)

-- case: a correlated scalar subquery with a lookup join inside
SELECT a.faa, (SELECT max(p.seats) FROM flights x JOIN planes p ON p.tailnum = x.tailnum WHERE x.dest = a.faa) AS most FROM airports a WHERE a.faa < 'D'

-- case: IN over a lookup join
SELECT f.flight FROM flights f WHERE f.carrier IN (SELECT x.carrier FROM flights x JOIN planes p ON p.tailnum = x.tailnum WHERE p.seats > 300)

-- case: NOT IN over a lookup join
SELECT f.flight FROM flights f WHERE f.carrier NOT IN (SELECT x.carrier FROM flights x JOIN planes p ON p.tailnum = x.tailnum WHERE p.seats > 300)

-- case: EXISTS over a lookup join
SELECT f.flight FROM flights f WHERE EXISTS (SELECT 1 FROM flights x LEFT JOIN planes p ON p.tailnum = x.tailnum WHERE x.carrier = f.carrier AND p.seats > 300)

-- case: a lateral subquery over the lookup table
SELECT f.flight, x.seats FROM flights f, LATERAL (SELECT p.seats FROM planes p WHERE p.tailnum = f.tailnum) x

-- case: LEFT JOIN LATERAL over the lookup table
SELECT f.flight, x.seats FROM flights f LEFT JOIN LATERAL (SELECT p.seats FROM planes p WHERE p.tailnum = f.tailnum AND p.seats > 100) x ON true

-- case: a lateral subquery with an aggregate over the lookup table
SELECT f.flight, x.n FROM flights f, LATERAL (SELECT count(*) AS n FROM planes p WHERE p.tailnum = f.tailnum) x

-- case: a lookup join inside a lateral subquery
SELECT a.faa, x.n FROM airports a, LATERAL (SELECT count(p.seats) AS n FROM flights g JOIN planes p ON p.tailnum = g.tailnum WHERE g.dest = a.faa) x

-- case: a lookup join in a CTE
WITH q AS (SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum) SELECT seats, count(*) AS n FROM q GROUP BY seats

-- case: a lookup join over a CTE
WITH q AS (SELECT * FROM flights WHERE hour < 9) SELECT q.flight, p.seats FROM q LEFT JOIN planes p ON p.tailnum = q.tailnum

-- case: a CTE that reads the lookup table
WITH big AS (SELECT * FROM planes WHERE seats > 200) SELECT f.flight, big.seats FROM flights f JOIN big ON big.tailnum = f.tailnum

-- case: a CTE that hides the lookup table's name
WITH planes AS (SELECT 'N14228' AS tailnum, 7 AS seats) SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum

-- case: nested CTEs
WITH a AS (WITH b AS (SELECT f.*, l.name FROM flights f JOIN airlines l ON l.carrier = f.carrier) SELECT * FROM b WHERE hour < 8)
SELECT a.flight, a.name, p.seats FROM a LEFT JOIN planes p ON p.tailnum = a.tailnum

-- case: a CTE read twice
WITH q AS (SELECT f.flight, f.carrier, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum WHERE f.hour < 8)
SELECT x.flight, y.seats FROM q x JOIN q y ON x.flight = y.flight AND x.carrier = y.carrier

-- case: a recursive CTE beside the lookup
WITH RECURSIVE n (i) AS (SELECT 5 UNION ALL SELECT i + 1 FROM n WHERE i < 9)
SELECT n.i, f.flight, p.seats FROM n JOIN flights f ON f.hour = n.i LEFT JOIN planes p ON p.tailnum = f.tailnum

-- case: a recursive CTE over the lookup
WITH RECURSIVE q AS (SELECT f.hour, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum WHERE f.hour < 7),
r (h, seats) AS (SELECT hour, seats FROM q WHERE hour = 5 UNION ALL SELECT h + 1, seats FROM r WHERE h < 7)
SELECT h, count(seats) AS n FROM r GROUP BY h

-- case: a subquery in FROM
SELECT s.seats, count(*) AS n FROM (SELECT p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum) s GROUP BY s.seats

-- case: a subquery three deep
SELECT * FROM (SELECT * FROM (SELECT f.flight, p.seats, p.model FROM flights f JOIN planes p ON p.tailnum = f.tailnum) a WHERE seats > 100) b WHERE model LIKE 'A%'

-- case: UNION ALL
SELECT f.flight, p.model FROM flights f JOIN planes p ON p.tailnum = f.tailnum UNION ALL SELECT f.flight, l.name FROM flights f JOIN airlines l ON l.carrier = f.carrier

-- case: UNION, EXCEPT and INTERSECT
(SELECT p.model FROM flights f JOIN planes p ON p.tailnum = f.tailnum WHERE f.hour < 9 UNION SELECT 'none') EXCEPT
(SELECT p.model FROM flights f JOIN planes p ON p.tailnum = f.tailnum WHERE f.hour < 7 INTERSECT SELECT p.model FROM flights f JOIN planes p ON p.tailnum = f.tailnum WHERE f.carrier = 'UA')

-- case: MINUS of a lookup join and a table
SELECT f.carrier FROM flights f JOIN planes p ON p.tailnum = f.tailnum WHERE p.seats > 200 MINUS SELECT carrier FROM flights WHERE hour = 5

-- case: a join of two subqueries of a UNION
SELECT u.flight, p.seats FROM (SELECT flight, tailnum FROM flights WHERE hour = 5 UNION ALL SELECT flight, tailnum FROM flights WHERE hour = 6) u LEFT JOIN planes p ON p.tailnum = u.tailnum

-- case: FROM first
FROM flights f JOIN planes p ON p.tailnum = f.tailnum SELECT f.flight, p.seats WHERE f.hour = 6

-- case: a correlated subquery over what was looked up
SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum WHERE p.seats > (SELECT avg(x.distance) / 8 FROM flights x WHERE x.carrier = f.carrier)

-- case: a scalar subquery that is correlated by a derived table in it
SELECT f.flight FROM flights f WHERE f.distance < (SELECT sum(t.seats) FROM (SELECT p.seats FROM planes p WHERE p.tailnum = f.tailnum) t)

-- case: EXISTS that is correlated by a derived table in it
SELECT f.flight FROM flights f WHERE EXISTS (SELECT 1 FROM (SELECT seats FROM planes WHERE planes.tailnum = f.tailnum) t WHERE t.seats > 100)

-- case: a scalar subquery that names a lookup table outside it, without its alias
SELECT tailnum, engines FROM planes WHERE engines > (SELECT count(*) FROM airports WHERE alt = seats)

-- case: EXISTS over a lookup table in the condition of a SEMI JOIN
SELECT l.name FROM (SELECT carrier AS name FROM flights) l LEFT SEMI JOIN first_day f ON f.carrier = l.name AND EXISTS (SELECT 1 FROM planes p WHERE p.tailnum = f.tailnum AND p.seats > 300)

-- case: a subquery that is correlated below a FULL JOIN of the lookup table
SELECT f.flight FROM first_day f WHERE 2 IN (SELECT p.engines FROM planes p FULL JOIN airports a ON a.name = p.model WHERE p.tailnum = f.tailnum)

-- case: a CTE with a LATERAL subquery over the lookup table, read twice
WITH seated AS (SELECT f.flight, t.seats FROM first_day f, LATERAL (SELECT seats FROM planes p WHERE p.tailnum = f.tailnum) t)
SELECT s.flight, m.seats FROM seated s JOIN (SELECT max(seats) AS seats FROM seated) m ON m.seats = s.seats

-- case: a CTE with a lookup join, read by a LATERAL subquery and beside it
WITH seated AS (SELECT f.flight, f.dest, p.seats FROM first_day f JOIN planes p ON p.tailnum = f.tailnum)
SELECT a.faa, t.seats, s.flight FROM airports a JOIN LATERAL (SELECT max(seats) AS seats FROM seated WHERE dest = a.faa) t JOIN seated s ON s.dest = a.faa AND s.seats = t.seats

-- case: a WITH in a correlated subquery, whose CTE with a lookup join is read twice
SELECT a.faa FROM airports a WHERE EXISTS (WITH seated AS (SELECT f.flight, f.dest, p.seats FROM first_day f JOIN planes p ON p.tailnum = f.tailnum)
SELECT 1 FROM seated s JOIN seated t ON s.seats = t.seats AND s.flight <> t.flight WHERE s.dest = a.faa)

-- case: IN with a scalar subquery among the keys
SELECT f.flight FROM flights f WHERE f.tailnum IN (SELECT tailnum FROM planes WHERE seats = (SELECT max(seats) FROM planes WHERE tailnum = 'N14228'))

-- case: NOT EXISTS with a scalar subquery without FROM among the keys
SELECT f.flight FROM flights f WHERE NOT EXISTS (SELECT 1 FROM planes p WHERE p.tailnum = f.tailnum AND p.engines = (SELECT max(2)))
