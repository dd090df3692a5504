-- lookup: airlines, weather

-- case: two columns of one key, which is looked up once
-- once: airlines
SELECT flight, lookup_get('airlines', 'name', carrier) AS airline, upper(lookup_get('airlines', 'name', f.carrier)) AS again FROM first_day f

-- case: a default where there is no row
-- once: airlines
SELECT flight, lookup_get('airlines', 'name', substr(tailnum, 1, 2), concat('none like ', tailnum)) AS airline FROM first_day

-- case: without a name, the column is called as it is written
SELECT lookup_get('airlines', 'name', carrier) FROM first_day

-- case: a key of two columns
-- once: weather
SELECT flight, lookup_get('weather', 'temp', struct(origin, time_hour)) AS temp, lookup_get('weather', 'wind_speed', (origin, time_hour), -1.0D) AS wind FROM first_day

-- case: in WHERE, beside a star
-- once: airlines
SELECT * FROM first_day WHERE lookup_get('airlines', 'name', carrier) LIKE 'United%' AND distance > 1000

-- case: in CASE, and in a condition of OR
SELECT flight, CASE WHEN lookup_get('airlines', 'name', carrier) LIKE 'Jet%' THEN 1 WHEN distance > 900 OR lookup_get('airlines', 'name', carrier) > 'S' THEN 2 END AS c FROM first_day

-- case: in an aggregate
-- once: airlines
SELECT origin, count(DISTINCT lookup_get('airlines', 'name', carrier)) AS n, max(lookup_get('airlines', 'name', carrier)) AS m FROM first_day GROUP BY origin

-- case: in GROUP BY, HAVING and ORDER BY
-- once: airlines
SELECT lookup_get('airlines', 'name', carrier) AS airline, count(*) AS n FROM first_day GROUP BY lookup_get('airlines', 'name', carrier) HAVING lookup_get('airlines', 'name', carrier) <> 'x' ORDER BY lookup_get('airlines', 'name', carrier) LIMIT 20

-- case: of a key that is grouped by
-- once: airlines
SELECT carrier, lookup_get('airlines', 'name', carrier) AS airline, count(*) AS n FROM first_day GROUP BY carrier

-- case: of a key that CUBE groups by
SELECT carrier, lookup_get('airlines', 'name', carrier, 'all') AS airline, origin, count(*) AS n FROM first_day GROUP BY CUBE (carrier, origin)

-- case: in GROUP BY ALL
SELECT lookup_get('airlines', 'name', carrier) AS airline, count(*) AS n FROM first_day GROUP BY ALL

-- case: in GROUP BY by name and by number
SELECT lookup_get('airlines', 'name', carrier) AS airline, substr(lookup_get('airlines', 'name', carrier), 1, 1) AS letter, count(*) AS n FROM first_day GROUP BY airline, 2

-- case: in a window
SELECT flight, rank() OVER (PARTITION BY lookup_get('airlines', 'name', carrier) ORDER BY distance, flight) AS r FROM first_day

-- case: in ON, of the left side
SELECT f.flight, p.seats FROM first_day f LEFT JOIN planes p ON p.tailnum = f.tailnum AND lookup_get('airlines', 'name', f.carrier) LIKE 'U%'

-- case: in ON, of the right side
SELECT a.flight, b.flight AS other FROM first_day a LEFT JOIN flights b ON b.tailnum = a.tailnum AND b.day = 2 AND lookup_get('airlines', 'name', b.carrier) LIKE 'Jet%'

-- case: in ON of a semi join, below a star
SELECT * FROM first_day a LEFT SEMI JOIN flights b ON b.tailnum = a.tailnum AND b.day = 2 AND lookup_get('airlines', 'name', b.carrier) LIKE 'Jet%'

-- case: of two relations with a comma between them
SELECT f.flight, lookup_get('weather', 'temp', (o.origin, f.time_hour)) AS temp FROM first_day f, (SELECT 'JFK' AS origin UNION ALL SELECT 'EWR') o WHERE f.distance > 2000

-- case: in a subquery, of the query around it
SELECT flight FROM first_day f WHERE EXISTS (SELECT 1 FROM planes p WHERE p.tailnum = f.tailnum AND lookup_get('airlines', 'name', f.carrier) LIKE 'U%')

-- case: in the key of another
SELECT flight, lookup_get('airlines', 'name', substr(lookup_get('airlines', 'name', carrier), 1, 2), 'none') AS x FROM first_day

-- case: beside a join with the same table, whose names stay
SELECT f.flight, name, lookup_get('airlines', 'name', f.carrier) AS again FROM first_day f JOIN airlines a ON a.carrier = f.carrier

-- case: in a CTE and in a derived table
WITH q AS (SELECT flight, lookup_get('airlines', 'name', carrier) AS airline FROM first_day) SELECT x.airline, count(*) AS n FROM (SELECT *, lookup_get('airlines', 'name', 'UA') AS ua FROM q) x WHERE x.airline <> x.ua GROUP BY x.airline

-- case: in pipe syntax
FROM first_day |> WHERE lookup_get('airlines', 'name', carrier) LIKE 'U%' |> SELECT flight, lookup_get('airlines', 'name', carrier) AS airline

-- case: without a FROM
-- once: airlines
SELECT lookup_get('airlines', 'name', 'UA') AS airline

-- case: in a lambda, of a column around it
SELECT flight, transform(array(1, 2), x -> concat(x, lookup_get('airlines', 'name', carrier))) AS names FROM first_day

-- case: in a struct, whose fields have no other names
SELECT struct(lookup_get('airlines', 'name', carrier), flight) AS s FROM first_day

-- case: in a view
CREATE OR REPLACE TEMPORARY VIEW named_flights AS SELECT flight, lookup_get('airlines', 'name', carrier) AS airline FROM first_day;
SELECT airline, count(*) AS n FROM named_flights GROUP BY airline

-- case: a value of a variable of a lambda
SELECT transform(array(carrier), x -> lookup_get('airlines', 'name', x)) AS names FROM first_day
-- refused:
lookup_get cannot be here: its key is a variable of a lambda, which no join can name. Make rows of the array first: FROM ... LATERAL VIEW explode(...).

-- case: a value of an aggregate
SELECT origin, lookup_get('airlines', 'name', max(carrier)) AS airline FROM first_day GROUP BY origin
-- refused:
lookup_get cannot be here: its key is an aggregate or a window. Compute the key in a derived table: FROM (SELECT ..., key AS k FROM ...).
-- instead:
SELECT origin, lookup_get('airlines', 'name', k) AS airline FROM (SELECT origin, max(carrier) AS k FROM first_day GROUP BY origin)

-- case: a value in ON, of both sides
SELECT f.flight FROM first_day f JOIN planes p ON p.tailnum = f.tailnum AND lookup_get('weather', 'temp', (substr(p.model, 1, 3), f.time_hour), 1.0D) > 0
-- refused:
lookup_get cannot be here: its key has columns of both sides of the join. Put the condition into WHERE, or compute the value in a derived table on one side.
-- instead:
SELECT f.flight FROM first_day f JOIN planes p ON p.tailnum = f.tailnum WHERE lookup_get('weather', 'temp', (substr(p.model, 1, 3), f.time_hour), 1.0D) > 0

-- case: a value of a LATERAL VIEW
SELECT c, lookup_get('airlines', 'name', c) AS airline FROM first_day LATERAL VIEW explode(array(carrier, 'UA')) v AS c
-- refused:
lookup_get cannot be here: its key may be a column of a LATERAL VIEW, behind which nothing can be joined. Qualify the key. Compute the key in a derived table: FROM (SELECT ..., key AS k FROM ...).
-- instead:
SELECT c, lookup_get('airlines', 'name', c) AS airline FROM (SELECT c FROM first_day LATERAL VIEW explode(array(carrier, 'UA')) v AS c)

-- case: a value that orders a set operation
SELECT carrier FROM first_day UNION SELECT 'UA' ORDER BY lookup_get('airlines', 'name', carrier)
-- refused:
lookup_get cannot be here: it orders the rows of a set operation. Select the value in each branch, and order by its name.

-- case: a value of the table without its declared key
SELECT flight, lookup_get('weather', 'temp', origin) AS temp FROM first_day
-- refused:
lookup_get: The key of weather has 2 columns (origin, time_hour), and 1 value is given. Write the key as struct(origin, time_hour).

-- case: a value of a pipe without a list
FROM first_day |> WHERE lookup_get('airlines', 'name', carrier) LIKE 'U%'
-- refused:
lookup_get cannot be here: no |> SELECT lists the columns behind it. End with |> SELECT.
