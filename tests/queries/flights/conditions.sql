-- lookup: planes, weather

-- case: two key columns
SELECT f.flight, w.temp FROM flights f LEFT JOIN weather w ON f.origin = w.origin AND f.time_hour = w.time_hour

-- case: the sides of an equality swapped
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum

-- case: a constant beside the key
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND p.engines = 2

-- case: a constant alone
SELECT f.flight, w.temp FROM (SELECT * FROM flights WHERE hour = 5 AND day = 1) f JOIN weather w ON w.hour = 5 AND w.origin = 'EWR'

-- case: conditions on the left alone of a LEFT JOIN
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND f.hour > 12 AND f.dest <> 'ORD'

-- case: conditions on the left alone of an INNER JOIN
SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum AND f.hour > 12

-- case: conditions on the dimension alone
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND p.seats > 100 AND p.manufacturer LIKE 'BOEING%'

-- case: a condition over both sides
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND p.seats * 4 < f.distance

-- case: an OR tree over both sides
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND ((p.seats > 150 AND f.hour < 9) OR p.engine = 'Turbo-jet' OR (f.dest = 'ORD' AND p.year IS NULL))

-- case: an OR of equalities that share the key
SELECT f.flight, p.seats FROM flights f JOIN planes p ON (p.tailnum = f.tailnum AND p.seats > 200) OR (p.tailnum = f.tailnum AND f.hour = 6)

-- case: NULL-safe equality beside a key
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND p.speed <=> f.dep_delay

-- case: NULL-safe equality with a constant
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND p.speed <=> NULL

-- case: IS NOT DISTINCT FROM beside a key
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND p.year IS NOT DISTINCT FROM f.year

-- case: two left expressions against one column
SELECT f.flight, w.temp FROM flights f JOIN weather w ON w.time_hour = f.time_hour AND w.origin = f.origin AND w.origin = left(concat(f.origin, f.dest), 3)

-- case: two columns against one left expression
SELECT f.flight, w.temp FROM flights f JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour AND w.day = f.day AND w.hour = f.day + 4

-- case: the key twice
SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum AND f.tailnum = p.tailnum

-- case: a function around the left
SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum = upper(trim(concat(' ', f.tailnum)))

-- case: a function around the column, beside a key
SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum AND upper(p.engine) = 'TURBO-FAN'

-- case: CASE as key
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = CASE WHEN f.hour < 12 THEN f.tailnum END

-- case: a field of a struct as key
SELECT s.x.flight, p.seats FROM (SELECT named_struct('flight', flight, 'plane', named_struct('tail', tailnum)) AS x FROM flights) s LEFT JOIN planes p ON p.tailnum = s.x.plane.tail

-- case: an element of an array and of a map as key
-- lookup: weather
SELECT s.flight, w.temp FROM (SELECT flight, array(origin) AS a, map('at', time_hour) AS m FROM flights) s JOIN weather w ON w.origin = s.a[0] AND w.time_hour = s.m['at']

-- case: a scalar subquery as key
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = (SELECT max(tailnum) FROM flights) AND f.hour = 5

-- case: a key in parentheses
SELECT f.flight, p.seats FROM flights f JOIN planes p ON ((p.tailnum) = (f.tailnum)) AND (p.seats > 100)

-- case: BETWEEN, IN and LIKE
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND p.year BETWEEN 1990 AND f.year AND p.engines IN (2, 3) AND p.type NOT LIKE '%Rotor%'

-- case: a lambda in the condition
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND exists(split(p.type, ' '), x -> x = 'wing')

-- case: a condition that guards an error
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND p.seats <> 2 AND 100 / (p.seats - 2) > 1

-- case: a condition on an earlier lookup
SELECT f.flight, p.seats, w.temp FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum LEFT JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour AND p.seats > 100

-- case: an uncorrelated scalar subquery in the condition of an INNER JOIN
SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum AND p.seats > (SELECT avg(distance) / 10 FROM flights)

-- case: an IN subquery over the dimension in the condition of an INNER JOIN
SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum AND p.year IN (SELECT 2000 + day FROM flights)

-- case: an EXISTS over the left in the condition of an INNER JOIN
SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum AND EXISTS (SELECT 1 FROM airports a WHERE a.faa = f.dest)

-- case: TRUE beside the key
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND true

-- case: FALSE beside the key
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND false

-- case: NULL beside the key
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND NULL

-- case: NOT of an OR
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND NOT (p.seats < 100 OR p.year < 2000)

-- case: == and chained comparisons
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum == f.tailnum AND p.seats > 100 = true

-- case: WHERE on the dimension of a LEFT JOIN
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum WHERE p.seats > 100 OR p.seats IS NULL

-- case: a correlated subquery over the dimension in the condition of a LEFT JOIN
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND p.seats > (SELECT count(*) FROM airports a WHERE a.alt = p.seats)
-- fails: UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY.UNSUPPORTED_CORRELATED_SCALAR_SUBQUERY

-- case: a correlated subquery in WHERE that is compared with a column of the table
-- once: planes
SELECT f.flight, p.seats FROM first_day f JOIN planes p ON p.tailnum = f.tailnum WHERE p.engines = (SELECT max(2) FROM airports a WHERE a.faa = f.dest)

-- case: EXISTS inside an expression that is compared with a column of the table
-- once: planes
SELECT f.flight, p.seats FROM first_day f JOIN planes p ON p.tailnum = f.tailnum AND p.engines = CASE WHEN EXISTS (SELECT 1 FROM airports a WHERE a.faa = f.dest) THEN 2 ELSE 1 END

-- case: an uncorrelated subquery with names of its own as the key
SELECT f.flight, l.name FROM first_day f LEFT JOIN airlines l ON l.carrier = (SELECT min(carrier) AS m FROM weather JOIN flights USING (origin) GROUP BY origin HAVING m > 'A' ORDER BY m LIMIT 1)

-- case: EXISTS in the condition of a SEMI JOIN, over the left side
-- once: planes
SELECT f.flight FROM first_day f LEFT SEMI JOIN planes p ON p.tailnum = f.tailnum AND EXISTS (SELECT 1 FROM airports a WHERE a.faa = f.dest AND a.alt > 100)

-- case: EXISTS in the condition of a SEMI JOIN, over the rows found
-- once: planes
SELECT f.flight FROM first_day f LEFT SEMI JOIN planes p ON p.tailnum = f.tailnum AND EXISTS (SELECT 1 FROM airports WHERE alt = seats) AND p.engines = 2

-- case: IN in the condition of an ANTI JOIN, over the left side
-- once: planes
SELECT f.flight FROM first_day f LEFT ANTI JOIN planes p ON p.tailnum = f.tailnum AND f.dest NOT IN (SELECT faa FROM airports WHERE alt > 100) AND p.engines = 2

-- case: IN and EXISTS in the condition of an ANTI JOIN, over both sides in turn, and a lookup after it
-- once: planes
SELECT f.flight, l.name FROM first_day f LEFT ANTI JOIN planes p ON p.tailnum = f.tailnum AND p.seats IN (SELECT alt FROM airports) AND EXISTS (SELECT 1 FROM airports WHERE faa = f.dest)
LEFT JOIN airlines l ON l.carrier = f.carrier

-- case: a NULL-safe equality as the only key
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum <=> f.tailnum

-- case: a NULL-safe equality in words, beside another key
SELECT f.flight, q.tailnum FROM flights f JOIN planes q ON q.year = f.year - 9 AND f.dep_delay IS NOT DISTINCT FROM q.speed

-- case: equal_null of two columns, beside a condition on the left side alone
SELECT f.flight, p.tailnum FROM flights f LEFT JOIN planes p ON equal_null(p.speed, f.dep_delay) AND f.flight < 50

-- case: a NULL-safe equality of an anti join
SELECT f.flight FROM flights f LEFT ANTI JOIN planes p ON f.dep_delay <=> p.speed

-- case: a NULL-safe equality in EXISTS
SELECT f.flight FROM flights f WHERE EXISTS (SELECT 1 FROM planes p WHERE p.speed <=> f.dep_delay AND p.seats > 100)

-- case: a NULL-safe equality with NULL itself
SELECT f.flight, p.tailnum FROM flights f JOIN planes p ON p.speed <=> NULL AND p.year = f.year - 9 WHERE f.flight < 20
