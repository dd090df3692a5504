-- lookup: planes, airlines, weather

-- case: a derived table over the lookup table
-- once: planes
SELECT f.flight, p.seats FROM first_day f JOIN (SELECT tailnum, seats FROM planes WHERE engines = 2) p ON p.tailnum = f.tailnum

-- case: a derived table of a LEFT JOIN, whose computed columns are NULL for rows without a match
-- once: planes
SELECT f.flight, p.tail, p.size FROM first_day f LEFT JOIN (SELECT tailnum AS tail, coalesce(seats, 0) + 1 AS size FROM planes WHERE engines > 2) p ON p.tail = f.tailnum AND p.size > 10

-- case: a CTE over the lookup table
-- once: planes
WITH big AS (SELECT tailnum, upper(model) AS model FROM planes WHERE seats > 150) SELECT f.flight, b.model FROM first_day f LEFT JOIN big b ON b.tailnum = f.tailnum

-- case: a CTE that is asked by key and read whole in one statement
WITH q AS (SELECT tailnum, seats FROM planes) SELECT f.flight, a.seats, b.tailnum FROM first_day f JOIN q a ON a.tailnum = f.tailnum FULL JOIN q b ON b.seats = a.seats AND b.tailnum = f.tailnum

-- case: a view over the lookup table
-- once: planes
CREATE OR REPLACE TEMPORARY VIEW jets (tail, seats) AS SELECT tailnum, seats FROM planes WHERE engine = 'Turbo-jet';
SELECT f.flight, j.seats FROM first_day f LEFT JOIN jets j ON j.tail = f.tailnum

-- case: a view over that view
-- once: planes
CREATE OR REPLACE TEMPORARY VIEW jets (tail, seats) AS SELECT tailnum, seats FROM planes WHERE engine = 'Turbo-jet';
CREATE OR REPLACE TEMPORARY VIEW large_jets AS SELECT tail AS t, seats * 2 AS twice FROM jets WHERE seats > 200;
SELECT f.flight, j.twice FROM first_day f LEFT JOIN large_jets j ON j.t = f.tailnum

-- case: derived tables in derived tables, with EXCEPT and renamed columns
SELECT * FROM first_day f JOIN (SELECT * EXCEPT (year) FROM (SELECT * FROM planes) x WHERE seats > 100) p ON p.tailnum = f.tailnum

-- case: a derived table on the left side of the join
SELECT p.seats, f.flight FROM (SELECT tailnum AS tail, seats FROM planes) p JOIN first_day f ON p.tail = f.tailnum

-- case: a derived table between commas
SELECT f.flight, p.seats FROM (SELECT tailnum AS tail, seats FROM planes) p, first_day f WHERE p.tail = f.tailnum AND p.seats > 100

-- case: a derived table with USING
SELECT tailnum, f.flight, p.seats FROM first_day f LEFT JOIN (SELECT seats, tailnum FROM planes WHERE engines = 2) p USING (tailnum)

-- case: EXISTS over a derived table
SELECT f.flight FROM first_day f WHERE EXISTS (SELECT 1 FROM (SELECT tailnum AS t, seats AS s FROM planes WHERE engines = 2) p WHERE p.t = f.tailnum AND p.s > f.hour)

-- case: two columns as keys, renamed
SELECT f.flight, w.speed FROM first_day f LEFT JOIN (SELECT origin AS o, time_hour AS t, wind_speed * 2 AS speed FROM weather WHERE temp > 30) w ON w.o = f.origin AND w.t = f.time_hour

-- case: a constant list
-- once: planes
SELECT * FROM planes WHERE tailnum IN ('N14228', 'N24211', 'N14228', 'none')

-- case: constants joined by OR
-- once: airlines
SELECT name FROM airlines WHERE carrier = 'AA' OR (carrier = 'UA' AND name LIKE 'U%') OR carrier IN ('B6', NULL)

-- case: a list of tuples
SELECT carrier, name FROM airlines WHERE (carrier, name) IN (('AA', 'American Airlines Inc.'), ('UA', 'nobody'))

-- case: a constant list beside a join that asks by another key
-- once: planes
SELECT f.flight, p.seats FROM first_day f LEFT JOIN planes p ON p.tailnum = f.tailnum WHERE p.engines IN (2, 3)

-- case: a constant list beside a join without a key
-- once: airlines
SELECT f.flight, l.name FROM first_day f JOIN airlines l ON l.carrier > f.carrier WHERE l.carrier IN ('UA', 'US')
