-- lookup: planes, airlines

-- case: INNER
SELECT f.flight, p.* FROM flights f INNER JOIN planes p ON f.tailnum = p.tailnum

-- case: LEFT OUTER
SELECT f.flight, p.* FROM flights f LEFT OUTER JOIN planes p ON f.tailnum = p.tailnum

-- case: LEFT SEMI
SELECT f.flight, f.tailnum FROM flights f LEFT SEMI JOIN planes p ON f.tailnum = p.tailnum

-- case: SEMI without LEFT, every column
SELECT * FROM flights f SEMI JOIN planes p ON f.tailnum = p.tailnum WHERE f.hour = 6

-- case: LEFT SEMI with a condition on the dimension
SELECT f.flight FROM flights f LEFT SEMI JOIN planes p ON f.tailnum = p.tailnum AND p.seats > 180

-- case: LEFT ANTI
SELECT f.flight, f.tailnum FROM flights f LEFT ANTI JOIN planes p ON f.tailnum = p.tailnum

-- case: ANTI without LEFT
SELECT f.flight, f.tailnum FROM flights f ANTI JOIN planes p ON f.tailnum = p.tailnum

-- case: LEFT ANTI with a condition that is NULL for some
SELECT f.flight, f.tailnum FROM flights f LEFT ANTI JOIN planes p ON f.tailnum = p.tailnum AND p.speed > 0

-- case: LEFT ANTI with a condition on the left alone
SELECT f.flight, f.tailnum FROM flights f LEFT ANTI JOIN planes p ON f.tailnum = p.tailnum AND f.distance > 1000

-- case: LEFT SEMI between two joins
SELECT f.flight, a.name, o.name FROM flights f JOIN airports a ON a.faa = f.dest LEFT SEMI JOIN planes p ON f.tailnum = p.tailnum
JOIN airports o ON o.faa = f.origin

-- case: LEFT ANTI before a join
SELECT f.flight, a.name FROM flights f LEFT ANTI JOIN planes p ON f.tailnum = p.tailnum JOIN airports a ON a.faa = f.dest

-- case: SEMI after a lookup join, keyed by its result
SELECT f.flight, p.model FROM flights f JOIN planes p ON f.tailnum = p.tailnum LEFT SEMI JOIN airlines l ON l.carrier = f.carrier AND l.name > p.manufacturer

-- case: the dimension on the left of an INNER JOIN
SELECT f.flight, p.seats FROM planes p JOIN flights f ON f.tailnum = p.tailnum

-- case: the dimension on the left, every column
SELECT * FROM planes p JOIN flights f ON f.tailnum = p.tailnum WHERE f.hour = 6

-- case: the dimension on the left, then another join
SELECT f.flight, p.seats, a.name FROM planes p JOIN flights f ON f.tailnum = p.tailnum LEFT JOIN airports a ON a.faa = f.dest

-- case: two dimensions on the left
SELECT f.flight, p.seats, l.name FROM planes p JOIN flights f ON f.tailnum = p.tailnum JOIN airlines l ON l.carrier = f.carrier

-- case: IN over the lookup table
SELECT f.flight FROM flights f WHERE f.tailnum IN (SELECT tailnum FROM planes)

-- case: IN over the lookup table with a condition
SELECT f.flight FROM flights f WHERE f.tailnum IN (SELECT p.tailnum FROM planes p WHERE p.seats > 180 AND p.engines = 2) AND f.hour < 9

-- case: NOT IN over the lookup table
SELECT f.flight FROM flights f WHERE f.tailnum NOT IN (SELECT tailnum FROM planes)

-- case: NOT IN of a key that may be NULL
SELECT f.flight FROM flights f WHERE f.tailnum NOT IN (SELECT p.tailnum FROM planes p WHERE p.year > 2000)

-- case: NOT IN over a column that holds NULL
SELECT f.flight FROM flights f WHERE f.distance NOT IN (SELECT speed FROM planes)

-- case: IN of two columns
-- lookup: weather
SELECT f.flight FROM flights f WHERE (f.origin, f.time_hour) IN (SELECT w.origin, w.time_hour FROM weather w WHERE w.wind_speed > 15)

-- case: EXISTS
SELECT f.flight FROM flights f WHERE EXISTS (SELECT 1 FROM planes p WHERE p.tailnum = f.tailnum)

-- case: EXISTS with a condition on both sides
SELECT f.flight FROM flights f WHERE EXISTS (SELECT * FROM planes p WHERE p.tailnum = f.tailnum AND p.seats * 10 > f.distance)

-- case: NOT EXISTS
SELECT f.flight FROM flights f WHERE NOT EXISTS (SELECT 1 FROM planes p WHERE p.tailnum = f.tailnum)

-- case: NOT EXISTS with a condition that is NULL for some
SELECT f.flight FROM flights f WHERE NOT EXISTS (SELECT 1 FROM planes p WHERE p.tailnum = f.tailnum AND p.speed > 0)

-- case: EXISTS and NOT EXISTS together
SELECT f.flight FROM flights f WHERE EXISTS (SELECT 1 FROM airlines l WHERE l.carrier = f.carrier) AND NOT EXISTS (SELECT 1 FROM planes p WHERE p.tailnum = f.tailnum)

-- case: EXISTS inside OR
SELECT f.flight FROM flights f WHERE f.hour = 5 OR EXISTS (SELECT 1 FROM planes p WHERE p.tailnum = f.tailnum AND p.seats > 300)

-- case: IN inside OR
SELECT f.flight FROM flights f WHERE f.hour = 5 OR f.tailnum IN (SELECT tailnum FROM planes WHERE engines > 2)

-- case: EXISTS over a join that ends in a lookup
SELECT a.faa FROM airports a WHERE EXISTS (SELECT 1 FROM flights f JOIN planes p ON p.tailnum = f.tailnum WHERE f.dest = a.faa AND p.seats > 300)

-- case: EXISTS in SELECT
SELECT f.flight, EXISTS (SELECT 1 FROM planes p WHERE p.tailnum = f.tailnum) AS known FROM flights f

-- case: EXISTS in the ON of an ordinary join
SELECT f.flight, a.name FROM flights f JOIN airports a ON a.faa = f.dest AND EXISTS (SELECT 1 FROM planes p WHERE p.tailnum = f.tailnum)

-- case: EXISTS below a join
SELECT f.flight, a.name FROM flights f JOIN airports a ON a.faa = f.dest WHERE EXISTS (SELECT 1 FROM planes p WHERE p.tailnum = f.tailnum AND p.seats > a.alt)

-- case: USING
SELECT f.flight, p.seats FROM flights f JOIN planes p USING (tailnum)

-- case: USING, every column
SELECT * FROM flights f JOIN airlines l USING (carrier) WHERE f.hour = 6

-- case: USING and the key by both names
SELECT carrier, l.carrier, f.carrier, l.name FROM flights f LEFT JOIN airlines l USING (carrier)

-- case: LEFT JOIN USING
SELECT tailnum, p.tailnum, p.model FROM flights f LEFT JOIN planes p USING (tailnum)

-- case: USING two columns
-- lookup: weather
SELECT origin, time_hour, w.temp, f.flight FROM flights f LEFT JOIN weather w USING (origin, time_hour)

-- case: USING, then another join USING
SELECT carrier, tailnum, l.name, p.seats FROM flights f JOIN airlines l USING (carrier) LEFT JOIN planes p USING (tailnum)

-- case: USING, then an ordinary join
SELECT carrier, l.name, a.name FROM flights f JOIN airlines l USING (carrier) JOIN airports a ON a.faa = f.dest

-- case: SEMI JOIN USING
SELECT * FROM flights LEFT SEMI JOIN planes USING (tailnum) WHERE hour = 6

-- case: ANTI JOIN USING
SELECT tailnum, flight FROM flights LEFT ANTI JOIN planes USING (tailnum)

-- case: NATURAL
SELECT * FROM (SELECT flight, carrier FROM flights) f NATURAL JOIN airlines l

-- case: NATURAL LEFT
SELECT * FROM (SELECT flight, tailnum FROM flights) f NATURAL LEFT JOIN planes p

-- case: NATURAL, the key by the dimension's name
SELECT carrier, l.carrier, name FROM (SELECT flight, carrier FROM flights) f NATURAL LEFT JOIN airlines l

-- case: the key of the dimension in WHERE after a LEFT JOIN
SELECT f.flight FROM flights f LEFT JOIN planes p ON f.tailnum = p.tailnum WHERE p.tailnum IS NULL

-- case: many rows for a key
-- lookup: weather
SELECT f.flight, w.hour, w.temp FROM (SELECT DISTINCT flight, origin FROM flights WHERE hour = 5) f JOIN weather w ON w.origin = f.origin

-- case: the same dimension twice
-- lookup: airports
SELECT f.flight, o.name, d.name FROM flights f JOIN airports o ON o.faa = f.origin LEFT JOIN airports d ON d.faa = f.dest

-- case: a dimension keyed by another dimension
-- lookup: airports, planes
SELECT f.flight, p.model, a.name FROM flights f JOIN planes p ON p.tailnum = f.tailnum LEFT JOIN airports a ON a.faa = substr(p.model, 1, 3)

-- case: three dimensions
-- lookup: airports, planes, airlines
SELECT f.flight, p.model, a.name, l.name FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum LEFT JOIN airports a ON a.faa = f.dest LEFT JOIN airlines l USING (carrier)
