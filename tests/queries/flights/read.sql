-- lookup: planes, airlines, edges

-- case: RIGHT JOIN with the lookup table on the right
-- read because: a RIGHT JOIN needs every row of the lookup table
SELECT f.flight, p.seats FROM flights f RIGHT JOIN planes p ON p.tailnum = f.tailnum

-- case: FULL JOIN
-- read because: a FULL JOIN needs every row of the lookup table
SELECT f.flight, p.seats FROM flights f FULL OUTER JOIN planes p ON p.tailnum = f.tailnum

-- case: CROSS JOIN without a key
-- read because: a CROSS JOIN gives no key to ask for
SELECT f.flight, l.name FROM flights f CROSS JOIN airlines l

-- case: a comma without a key
-- read because: no equality in WHERE gives its key, so nothing says which rows to ask for
SELECT f.flight, l.name FROM flights f, airlines l

-- case: no condition
-- read because: it has no ON condition, so nothing says which rows to ask for
SELECT f.flight, l.name FROM flights f JOIN airlines l

-- case: no equality in the condition
-- read because: its condition has no equality between an expression of the left side and a column that can be asked by
SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum > f.tailnum WHERE f.flight < 50

-- case: a function around the column of the only key
-- read because: its condition has no equality between an expression of the left side and a column that can be asked by
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON upper(p.tailnum) = f.tailnum

-- case: an OR of different keys
-- read because: its condition has no equality between an expression of the left side and a column that can be asked by
SELECT f.flight, l.name FROM flights f JOIN airlines l ON l.carrier = f.carrier OR l.carrier = left(f.dest, 2)

-- case: a text asked by numbers
-- conf: spark.sql.ansi.enabled = false
-- read because: v.x is INT and e.word is STRING, so one key may equal several values of the column
SELECT v.x, e.word FROM VALUES (2), (3) AS v (x) LEFT JOIN edges e ON e.word = v.x

-- case: a key of another type beside one that a query gives
-- read because: v.x is INT and e.small is SMALLINT, so one key may equal several values of the column
SELECT v.x FROM VALUES (1), (2), (70000) AS v (x) WHERE v.x IN (SELECT e.small FROM edges e WHERE e.word = (SELECT max(l.carrier) FROM (SELECT 'A' AS carrier) l))

-- case: a collation that is not binary on the key
-- read because: v.x COLLATE UTF8_LCASE is STRING COLLATE UTF8_LCASE and e.word is STRING, so one key may equal several values of the column
SELECT v.x, e.id FROM VALUES ('a'), ('b') AS v (x) LEFT JOIN edges e ON e.word = v.x COLLATE UTF8_LCASE

-- case: an IN subquery over the dimension in the condition of a LEFT JOIN
-- read because: its ON condition has a subquery
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND p.year IN (SELECT 2000 + day FROM flights)

-- case: an uncorrelated scalar subquery in the condition of a LEFT JOIN
-- read because: its ON condition has a subquery
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND p.seats > (SELECT avg(distance) / 10 FROM flights)

-- case: an IN subquery over the left in the condition of a LEFT JOIN
-- read because: its ON condition has a subquery
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND f.dest IN (SELECT faa FROM airports WHERE alt > 1000)

-- case: a RIGHT JOIN with USING before it, and another relation after it
-- read because: a join with USING or NATURAL comes before it, and another relation after it
SELECT f.flight, p.seats, l.name FROM (SELECT DISTINCT origin AS faa FROM flights) o RIGHT JOIN (SELECT *, dest AS faa FROM flights) f USING (faa) JOIN planes p ON p.tailnum = f.tailnum JOIN (SELECT DISTINCT * FROM airlines) l ON l.carrier = f.carrier

-- case: USING behind a comma, with a column from before the comma, too
-- read because: a join with USING or NATURAL follows a comma, where its columns may be those of a relation before the comma
SELECT f.flight, l.name FROM (SELECT DISTINCT carrier FROM flights) g, flights f JOIN airlines l USING (carrier)

-- case: a sample of the lookup table
-- read because: TABLESAMPLE (2 ROWS) applies to it
SELECT f.flight, p.seats FROM flights f JOIN planes TABLESAMPLE (2 ROWS) p ON p.tailnum = f.tailnum

-- case: a column of USING by its table behind a pipe join, and no list of columns
-- read because: carrier is a column of USING, and no list of columns follows
FROM flights |> JOIN airlines a USING (carrier) |> WHERE a.carrier > 'A'

-- case: ON that names a lookup table before a comma, whose key comes from behind it
-- read because: its key comes from joins behind the comma that name it themselves
SELECT f.flight, l.name, p.seats FROM airlines l, flights f JOIN planes p ON p.tailnum = f.tailnum AND p.seats > length(l.name) JOIN airports a ON a.faa = f.dest WHERE l.carrier = f.carrier

-- case: USING behind a comma, and a LATERAL subquery behind it that names what comes before
-- read because: a join with USING or NATURAL follows a comma, where its columns may be those of a relation before the comma
SELECT f.flight, l.name, t.h FROM first_day g, first_day f JOIN airlines l USING (carrier) JOIN LATERAL (SELECT g.hour + 1 AS h) t WHERE g.flight = f.flight

-- case: a LATERAL subquery that names a lookup table, joined with what gives its key
-- read because: its key comes from joins behind the comma that name it themselves
SELECT f.flight, t.c FROM airlines l, first_day f JOIN LATERAL (SELECT l.name || f.dest AS c) t WHERE l.carrier = f.carrier

-- case: a correlated subquery as the only key
-- read because: no equality in WHERE gives its key, so nothing says which rows to ask for
SELECT f.flight FROM flights f, planes p WHERE p.tailnum = (SELECT max(x.tailnum) FROM first_day x WHERE x.flight = f.flight)

-- case: a comma before a RIGHT JOIN is a join, too
-- read because: a CROSS JOIN gives no key to ask for
SELECT f.flight, p.seats, a.faa FROM first_day f, planes p RIGHT JOIN airports a ON a.faa = f.dest AND p.tailnum = f.tailnum
