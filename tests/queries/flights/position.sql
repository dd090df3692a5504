-- lookup: planes, airlines

-- case: last of two joins
SELECT f.flight, a.name, p.seats FROM flights f JOIN airports a ON f.dest = a.faa LEFT JOIN planes p ON f.tailnum = p.tailnum

-- case: between two joins
SELECT f.flight, p.seats, a.name FROM flights f LEFT JOIN planes p ON f.tailnum = p.tailnum JOIN airports a ON f.dest = a.faa

-- case: every column of a chain with the lookup between
SELECT * FROM flights f LEFT JOIN planes p ON f.tailnum = p.tailnum LEFT JOIN airports a ON a.faa = f.dest WHERE f.hour = 6

-- case: the join after it uses what was looked up
SELECT f.flight, p.engine, o.planes FROM flights f JOIN planes p ON f.tailnum = p.tailnum
JOIN (SELECT origin, count(DISTINCT tailnum) AS planes FROM flights GROUP BY origin) o
  ON o.origin = f.origin AND p.seats > 100

-- case: a lookup, a join and a lookup again
SELECT f.flight, p.model, a.name AS airport, l.name AS airline FROM flights f
LEFT JOIN planes p ON p.tailnum = f.tailnum JOIN airports a ON a.faa = f.dest JOIN airlines l ON l.carrier = f.carrier

-- case: a FULL JOIN of ordinary tables after it
SELECT f.flight, p.seats, a.faa FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum
FULL JOIN (SELECT faa FROM airports WHERE faa LIKE 'A%') a ON a.faa = f.dest

-- case: a RIGHT JOIN of an ordinary table after it
SELECT f.flight, p.seats, a.faa FROM flights f JOIN planes p ON p.tailnum = f.tailnum
RIGHT JOIN (SELECT faa FROM airports WHERE faa < 'C') a ON a.faa = f.dest

-- case: a RIGHT JOIN of ordinary tables before it
SELECT f.flight, a.faa, p.seats FROM flights f RIGHT JOIN (SELECT faa FROM airports WHERE faa < 'C') a ON a.faa = f.dest
LEFT JOIN planes p ON p.tailnum = f.tailnum

-- case: a CROSS JOIN after it
SELECT f.flight, p.seats, n.n FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum CROSS JOIN (SELECT 1 AS n UNION ALL SELECT 2) n

-- case: a SEMI JOIN of an ordinary table after it
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum
LEFT SEMI JOIN airports a ON a.faa = f.dest AND a.alt > p.seats

-- case: comma join with the key in WHERE
SELECT f.flight, p.seats FROM flights f, planes p WHERE f.tailnum = p.tailnum AND p.seats > 200

-- case: comma join of three, both keys in WHERE
SELECT f.flight, p.seats, l.name FROM flights f, planes p, airlines l
WHERE l.carrier = f.carrier AND f.tailnum = p.tailnum AND f.hour = 6

-- case: comma join with the dimension written first
SELECT f.flight, p.seats FROM planes p, flights f WHERE f.tailnum = p.tailnum

-- case: every column with the dimension written first
SELECT * FROM airlines l, flights f WHERE f.carrier = l.carrier AND f.hour = 6

-- case: comma join with an ordinary table between
SELECT f.flight, a.name, p.seats FROM flights f, airports a, planes p WHERE f.tailnum = p.tailnum AND a.faa = f.dest

-- case: comma join with an ordinary table after it
SELECT f.flight, a.name, p.seats FROM flights f, planes p, airports a WHERE f.tailnum = p.tailnum AND a.faa = f.dest

-- case: a comma after an explicit lookup join
SELECT f.flight, p.seats, a.name FROM flights f JOIN planes p ON f.tailnum = p.tailnum, airports a WHERE a.faa = f.dest

-- case: an explicit join after a comma
SELECT f.flight, a.name, p.seats FROM airports a, flights f JOIN planes p ON f.tailnum = p.tailnum WHERE a.faa = f.dest

-- case: an INNER JOIN without ON whose key is in WHERE
SELECT f.flight, p.seats FROM flights f JOIN planes p WHERE f.tailnum = p.tailnum

-- case: a CROSS JOIN whose key is in WHERE
SELECT f.flight, p.seats FROM flights f CROSS JOIN planes p WHERE f.tailnum = p.tailnum AND f.hour < 8

-- case: a part of the key in ON, the other in WHERE
-- lookup: weather
SELECT f.flight, w.temp FROM flights f JOIN weather w ON f.origin = w.origin WHERE f.time_hour = w.time_hour

-- case: a non-key condition in ON, the key in WHERE
SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.seats > 100 WHERE f.tailnum = p.tailnum

-- case: a key that is chained through another table in WHERE
SELECT f.flight, l.name, x.n FROM flights f, airlines l, (SELECT carrier AS c, count(*) AS n FROM flights GROUP BY carrier) x
WHERE f.carrier = x.c AND x.c = l.carrier

-- case: parentheses around the lookup join
SELECT f.flight, p.seats, a.name FROM (flights f JOIN planes p ON f.tailnum = p.tailnum) JOIN airports a ON a.faa = f.dest

-- case: parentheses around the whole FROM
SELECT f.flight, p.seats FROM (flights f LEFT JOIN planes p ON f.tailnum = p.tailnum)

-- case: parentheses around the left side
SELECT f.flight, a.name, p.seats FROM (flights f JOIN airports a ON a.faa = f.dest) LEFT JOIN planes p ON f.tailnum = p.tailnum

-- case: parentheses on the right, the lookup join inside them
SELECT a.name, x.flight, p.seats FROM airports a JOIN (flights x JOIN planes p ON x.tailnum = p.tailnum) ON a.faa = x.dest

-- case: parentheses around the lookup table alone
SELECT f.flight, p.seats FROM flights f JOIN (planes p) ON f.tailnum = p.tailnum

-- case: nested parentheses with two lookups
SELECT f.flight, p.seats, l.name FROM ((flights f JOIN planes p ON f.tailnum = p.tailnum) LEFT JOIN airlines l ON l.carrier = f.carrier)

-- case: a subquery of the whole lookup table on the right
SELECT f.flight, p.seats FROM flights f JOIN (SELECT * FROM planes) p ON f.tailnum = p.tailnum

-- case: a LEFT JOIN of a lookup join in parentheses
SELECT a.faa, x.flight, p.seats FROM (SELECT * FROM airports WHERE faa LIKE 'B%') a
LEFT JOIN (flights x JOIN planes p ON x.tailnum = p.tailnum) ON a.faa = x.dest

-- case: the lookup in a subquery that another join reads
SELECT a.name, s.seats FROM airports a JOIN (SELECT f.dest, p.seats FROM flights f JOIN planes p ON f.tailnum = p.tailnum) s ON s.dest = a.faa

-- case: the lookup over a subquery with an aggregate
SELECT s.n, l.name FROM (SELECT carrier, count(*) AS n FROM flights GROUP BY carrier) s JOIN airlines l ON l.carrier = s.carrier

-- case: lateral views before and after it
SELECT f.flight, p.seats, part, letter FROM flights f JOIN planes p ON f.tailnum = p.tailnum
LATERAL VIEW explode(split(p.type, ' ')) v AS part LATERAL VIEW OUTER explode(split(p.engine, 'o')) w AS letter WHERE f.hour = 5

-- case: a lateral subquery after it
SELECT f.flight, p.seats, x.rows FROM flights f JOIN planes p ON f.tailnum = p.tailnum, LATERAL (SELECT p.seats DIV 6 AS rows) x

-- case: the lookup keyed by a lateral subquery
SELECT f.flight, p.seats FROM flights f, LATERAL (SELECT upper(f.tailnum) AS tail) x JOIN planes p ON p.tailnum = x.tail

-- case: five relations, the lookups second and fourth
SELECT f.flight, l.name, a.name, p.seats, o.name FROM flights f JOIN airlines l ON l.carrier = f.carrier
LEFT JOIN airports a ON a.faa = f.dest LEFT JOIN planes p ON p.tailnum = f.tailnum JOIN airports o ON o.faa = f.origin

-- case: both sides of a join are lookup joins
SELECT x.flight, x.name, y.seats FROM (SELECT f.flight, l.name, f.tailnum FROM flights f JOIN airlines l ON l.carrier = f.carrier) x
JOIN (SELECT f.flight, p.seats, f.tailnum FROM flights f JOIN planes p ON p.tailnum = f.tailnum) y ON x.flight = y.flight AND x.tailnum = y.tailnum

-- case: a hint reaches its own block only
SELECT /*+ LOOKUP('table'='l', 'async'='false') */ s.seats, l.name FROM
(SELECT /*+ LOOKUP('table'='p', 'batch-size'='50') */ f.carrier, p.seats FROM flights f JOIN planes p ON f.tailnum = p.tailnum) s
JOIN airlines l ON l.carrier = s.carrier

-- case: a table is read whole and asked in one statement
SELECT f.flight, l.name, (SELECT count(*) FROM airlines) AS airlines FROM flights f JOIN airlines l ON l.carrier = f.carrier WHERE f.hour = 7

-- case: the lookup table drives the query
SELECT l.name, count(*) AS n FROM airlines l LEFT JOIN flights f ON f.carrier = l.carrier GROUP BY l.name

-- case: a LATERAL subquery over a lookup table that is read whole
SELECT p.tailnum, t.s FROM planes p, LATERAL (SELECT p.seats + 1 AS s) t

-- case: a LATERAL table function over a lookup table that is read whole
SELECT p.tailnum, t.n FROM planes p, LATERAL explode(array(p.seats, p.engines)) t(n)

-- case: a LATERAL subquery over a comma join
-- once: planes
SELECT * FROM first_day f, planes p, LATERAL (SELECT p.seats + f.flight AS s) t WHERE p.tailnum = f.tailnum

-- case: a LATERAL table function over a comma join, and a lookup of what it gives
-- once: planes, airlines
SELECT f.flight, p.seats, t.c, l.name FROM first_day f, planes p, LATERAL explode(array(f.carrier, left(p.model, 2))) t(c), airlines l
WHERE p.tailnum = f.tailnum AND l.carrier = t.c AND f.flight < 500

-- case: a LATERAL subquery between the lookup table and what gives its key
-- once: planes
SELECT * FROM planes p, LATERAL (SELECT p.seats + 1 AS s) t, first_day f WHERE p.tailnum = f.tailnum

-- case: a LATERAL subquery behind the lookup table gives its key
SELECT * FROM planes p, LATERAL (SELECT 'N1' || '4228' AS tail) t WHERE p.tailnum = t.tail

-- case: a LATERAL subquery computes from the lookup table what is compared with its key
SELECT * FROM planes p, LATERAL (SELECT upper(tailnum) AS tail) t WHERE p.tailnum = t.tail

-- case: ON that names a table before a comma, with another join behind it
SELECT f.flight, p.seats, r.faa FROM (SELECT * FROM flights LIMIT 5) f, VALUES ('N1') AS v (t) LEFT JOIN planes p ON p.tailnum = f.tailnum LEFT JOIN airports r ON r.faa = f.dest AND p.seats > 0 JOIN weather w ON w.origin = v.t

-- case: a LATERAL subquery behind a comma, and a lookup between other joins
-- once: planes
SELECT f.flight, t.h, p.seats, r.name FROM first_day f, LATERAL (SELECT f.hour + 1 AS h) t JOIN planes p ON p.tailnum = f.tailnum AND p.seats > t.h JOIN airports r ON r.faa = f.dest

-- case: a LATERAL subquery names what comes before a comma, in a chain with a lookup between other joins
SELECT f.flight, t.c, p.seats, r.name FROM first_day f, (SELECT 'x' AS x) v CROSS JOIN LATERAL (SELECT f.dest || v.x AS c) t JOIN planes p ON p.tailnum = f.tailnum JOIN airports r ON r.faa = f.dest

-- case: a sample in parentheses
SELECT count(*) AS n FROM (planes TABLESAMPLE (5 ROWS)) p

-- case: a sample of a sample
SELECT count(*) AS n FROM (planes TABLESAMPLE (9 ROWS)) TABLESAMPLE (4 ROWS) p

-- case: a comma in parentheses
SELECT l.name FROM (airlines l, first_day f) WHERE l.carrier = f.carrier
-- fails: PARSE_SYNTAX_ERROR

-- case: a sample of fewer rows than none
SELECT * FROM planes TABLESAMPLE (-1 ROWS)
-- fails: INVALID_LIMIT_LIKE_EXPRESSION.IS_NEGATIVE
