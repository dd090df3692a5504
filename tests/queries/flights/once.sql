-- lookup: planes, airlines
-- once: planes

-- case: a plain join asks once
SELECT f.flight, p.seats FROM first_day f JOIN planes p ON p.tailnum = f.tailnum

-- case: a global ORDER BY
-- ordered
SELECT f.flight, p.seats FROM first_day f LEFT JOIN planes p ON p.tailnum = f.tailnum ORDER BY p.seats, f.flight, f.time_hour, f.tailnum

-- case: a global ORDER BY with the lookup in the middle
SELECT f.flight, p.seats, a.name FROM first_day f LEFT JOIN planes p ON p.tailnum = f.tailnum JOIN airports a ON a.faa = f.dest ORDER BY p.seats, a.name

-- case: a global ORDER BY over a subquery with the lookup
SELECT * FROM (SELECT f.flight, p.seats FROM first_day f LEFT JOIN planes p ON p.tailnum = f.tailnum) ORDER BY seats, flight

-- case: a global ORDER BY over a union
SELECT f.flight, p.seats FROM first_day f JOIN planes p ON p.tailnum = f.tailnum UNION ALL SELECT flight, hour FROM first_day ORDER BY 1, 2

-- case: a semi join below an equi-join
SELECT x.flight, y.n FROM (SELECT * FROM first_day f LEFT SEMI JOIN planes p ON p.tailnum = f.tailnum) x JOIN (SELECT tailnum, count(*) AS n FROM first_day GROUP BY tailnum) y ON x.tailnum = y.tailnum

-- case: an EXISTS below an equi-join
SELECT f.flight, y.n FROM first_day f JOIN (SELECT tailnum, count(*) AS n FROM first_day GROUP BY tailnum) y ON f.tailnum = y.tailnum WHERE EXISTS (SELECT 1 FROM planes p WHERE p.tailnum = f.tailnum AND p.seats > 100)

-- case: an anti join below an equi-join
SELECT x.flight, y.n FROM (SELECT * FROM first_day f LEFT ANTI JOIN planes p ON p.tailnum = f.tailnum) x JOIN (SELECT tailnum, count(*) AS n FROM first_day GROUP BY tailnum) y ON x.tailnum = y.tailnum

-- case: a CTE read twice asks once
WITH q AS (SELECT f.flight, f.hour, p.seats FROM first_day f JOIN planes p ON p.tailnum = f.tailnum) SELECT x.flight, y.seats FROM q x JOIN q y ON x.flight = y.flight AND x.hour = y.hour

-- case: a CTE read twice with other columns and conditions
WITH q AS (SELECT f.flight, f.hour, p.seats, p.model FROM first_day f JOIN planes p ON p.tailnum = f.tailnum) SELECT model, count(*) AS n FROM q WHERE hour > 6 GROUP BY model UNION ALL SELECT string(seats), count(*) FROM q GROUP BY seats

-- case: an aggregate over the lookup
SELECT p.model, count(*) AS n, count(DISTINCT f.dest) AS d, count(DISTINCT f.origin) AS o FROM first_day f LEFT JOIN planes p ON p.tailnum = f.tailnum GROUP BY p.model

-- case: columns of the lookup used many times
SELECT p.seats + p.seats AS a, CASE WHEN p.seats > 100 THEN p.seats END AS b, coalesce(p.seats, p.year) AS c FROM first_day f LEFT JOIN planes p ON p.tailnum = f.tailnum WHERE p.seats > 50 AND p.seats < 300

-- case: nothing of the lookup is used
SELECT f.flight FROM first_day f LEFT JOIN planes p ON p.tailnum = f.tailnum

-- case: a window and a sort
SELECT f.flight, rank() OVER (ORDER BY p.seats, f.flight) AS r FROM first_day f JOIN planes p ON p.tailnum = f.tailnum ORDER BY r

-- case: a sort-merge join on the looked-up column
SELECT /*+ MERGE(a) */ f.flight, a.n FROM first_day f JOIN planes p ON p.tailnum = f.tailnum JOIN (SELECT hour * 10 AS s, count(*) AS n FROM first_day GROUP BY hour) a ON a.s = p.seats

-- case: a FULL JOIN on the looked-up column
SELECT f.flight, a.n FROM first_day f JOIN planes p ON p.tailnum = f.tailnum FULL JOIN (SELECT hour * 10 AS s, count(*) AS n FROM first_day GROUP BY hour) a ON a.s = p.seats

-- case: IN below an equi-join
SELECT f.flight, y.n FROM first_day f JOIN (SELECT tailnum, count(*) AS n FROM first_day GROUP BY tailnum) y ON f.tailnum = y.tailnum WHERE f.tailnum IN (SELECT tailnum FROM planes)

-- case: a comma join with the key in WHERE asks once
SELECT f.flight, p.seats FROM first_day f, planes p WHERE p.tailnum = f.tailnum ORDER BY p.seats

-- case: a dimension on the left asks once
SELECT f.flight, p.seats FROM planes p JOIN first_day f ON p.tailnum = f.tailnum

-- case: a write
DROP TABLE IF EXISTS counted;
CREATE TABLE counted USING parquet AS SELECT f.flight, p.seats FROM first_day f JOIN planes p ON p.tailnum = f.tailnum ORDER BY p.seats;
SELECT count(*) AS n FROM counted

-- case: INTERSECT over the lookup
SELECT f.flight, p.seats FROM first_day f JOIN planes p ON p.tailnum = f.tailnum INTERSECT SELECT flight, hour * 10 FROM first_day

-- case: LIMIT under ORDER BY
SELECT f.flight, p.seats FROM first_day f JOIN planes p ON p.tailnum = f.tailnum ORDER BY p.seats DESC, f.flight, f.time_hour LIMIT 7
